"""Learning without forgetting: on new images, the old classes' logits are distilled (Li and Hoiem 2016).

Not here: the original first trains the new head alone for a while.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from gcab.data.tasks import Batch, Progress, Task
from gcab.errors import check_options
from gcab.methods.card import Card, Compass
from gcab.methods.distillation import sigmoid_cross_entropy, softened_divergence
from gcab.methods.regularised import Distilled, RegularisedOptions
from gcab.methods.space import Between, OneOf, space


@dataclass(frozen=True)
class LwfOptions(RegularisedOptions):
    """The publication's; `weight` is 10 in later work without exemplars."""

    temperature: float = 2.0  # T
    answers: Literal["softmax", "sigmoid"] = "softmax"  # sigmoid: the multi-class variant of iCaRL's authors
    old_heads: Literal["learn", "frozen"] = "learn"  # frozen: FACIL

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self, ("temperature",))


class Lwf(Distilled):
    """L = CE(new head) + λ T² KL(softmax(z⁻ / T) ‖ softmax(z_old / T)); nothing is stored between tasks."""

    Options: ClassVar[type[Any]] = LwfOptions
    summary = "learning without forgetting: distills the old classes' answers on new images; stores no image"
    card: ClassVar[Card] = Card(
        source="Li and Hoiem, ECCV 2016",
        differs="the new head is not trained alone first",
        compass=Compass(task_agnostic="supervised"),
    )
    search_space = space(weight=Between(0.3, 30), temperature=OneOf(1.0, 2.0, 4.0))
    options: LwfOptions

    def grow(self, task: Task) -> None:
        if self.options.old_heads == "frozen":
            self.network.head.requires_grad_(False)
        super().grow(task)

    def batch(self, batch: Batch) -> Batch:
        """Add z⁻, the teacher's logits of old classes."""
        if self.teacher is None:
            return batch
        return replace(batch, targets={"answers": self.teacher(batch.images)[:, : self.known]})

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        logits = self.network(batch.images)
        terms = {"classification": self.labelled(logits, batch.labels)}
        if batch.targets:
            distance = self.distance(logits[:, : self.known], batch.targets["answers"])
            terms["distillation"] = self.options.weight * distance
        return terms

    def distance(self, now: Tensor, before: Tensor) -> Tensor:
        if self.options.answers == "sigmoid":
            return sigmoid_cross_entropy(now, before)
        return softened_divergence(now, before, self.options.temperature)
