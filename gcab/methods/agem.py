"""A-GEM: to first order, no step may increase the mean loss of stored images (Chaudhry et al. 2019).

The constraint holds for the gradient, not necessarily for the step that an adaptive optimiser makes of it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gcab.data.tasks import Batch, Progress, Setting, Task
from gcab.methods.card import Card, Compass
from gcab.methods.gradients import Gradients
from gcab.methods.rehearsal import ReplayedOptions, SharedByTasks
from gcab.methods.space import OneOf, space


@dataclass(frozen=True)
class AgemOptions(ReplayedOptions):
    """`replay`: images of the reference gradient; Mammoth draws 128."""


class Agem(SharedByTasks):
    """g̃ = g - (<g, r> / <r, r>) r where <g, r> < 0, with r the gradient of drawn images, which are not trained on."""

    Options: ClassVar[type[Any]] = AgemOptions
    summary = "A-GEM: gradients are projected so that stored images get no worse (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Chaudhry et al., ICLR 2019",
        stores="images, as many of every task and class",
        differs="how many tasks come is not known, so shares shrink; learns and answers over all classes",
        compass=Compass(episodic_memory="supervised"),
    )
    search_space = space(replay=OneOf(0, 32, 64))
    purposes: ClassVar[dict[str, str]] = {"violated": "steps of each task whose gradient had to be projected"}
    violated: Tensor
    options: AgemOptions

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.register_buffer("violated", torch.zeros(0, dtype=torch.long))

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.violated = torch.cat([self.violated, self.violated.new_zeros(1)])

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        logits = self.network(batch.images[: batch.fresh])
        return {"classification": self.classification(logits, batch.labels[: batch.fresh])}

    def before_step(self, progress: Progress, batch: Batch, gradients: Gradients) -> None:  # noqa: ARG002
        if batch.slots is None:
            return
        own = gradients.flat()
        references = self.references(batch, gradients)
        violated = (references @ own < 0).any() & (self.memory.filled > 0)
        gradients.write(torch.where(violated, self.projected(own, references), own))
        self.violated[-1] += violated

    def references(self, batch: Batch, gradients: Gradients) -> Tensor:
        """Reference gradients, with which a step's must not have a negative inner product: here (1, weights)."""
        images, labels = batch.images[batch.fresh :], batch.labels[batch.fresh :]
        return gradients.of(lambda: self.classification(self.network(images), labels))[None]

    def projected(self, own: Tensor, references: Tensor) -> Tensor:
        """The nearest gradient without a negative inner product with any reference."""
        [reference] = references
        return own - own @ reference / (reference @ reference).clamp_min(1e-30) * reference

    def counted(self) -> dict[str, list[int]]:
        return {"violated": self.violated.tolist()}
