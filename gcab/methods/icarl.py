"""iCaRL: herded exemplars, distillation of the old answers, nearest mean of exemplars (Rebuffi et al., CVPR 2017).

Legend: φ = unit feature, μ = class means of exemplars, z⁻ = logits before the task.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gcab.data.tasks import Batch, Part, Progress, Setting, Task, TaskImages
from gcab.errors import check_options
from gcab.methods.card import Card, Compass
from gcab.methods.distillation import softened_divergence
from gcab.methods.finetune import Finetune
from gcab.methods.herding import (
    AmongExemplars,
    add_classes,
    class_means,
    herded,
    in_order,
    nearness,
    unit,
    widened,
)
from gcab.methods.method import Loss
from gcab.methods.space import OneOf, space

HEADS = "heads"  # a part


@dataclass(frozen=True)
class IcarlOptions:
    """The paper compares with buffers of 200 and 500 images, which are shuffled among those of the task."""

    buffer: int = 200  # images in all, as many of each class
    loss: Loss = "bce"  # published: bce, old classes with the answers they had; ce: CE + KL, as FACIL

    def __post_init__(self) -> None:
        check_options(self, weights=("buffer",))


class Icarl(AmongExemplars, Finetune):
    """Features are trained as a classifier; predictions are those of the nearest class mean."""

    Options: ClassVar[type[Any]] = IcarlOptions
    summary = "iCaRL: herded exemplars among the task's images, nearest mean (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Rebuffi et al., CVPR 2017",
        stores="herded images, as many of every class, and a mean feature per class",
        differs="shares are rounded down, so that the memory never exceeds its budget",
        compass=Compass(episodic_memory="supervised"),
    )
    search_space = space(loss=OneOf("bce", "ce"))
    purposes: ClassVar[dict[str, str]] = {"means": "mean feature of each class's exemplars"}
    options: IcarlOptions
    means: Tensor

    def __init__(self, setting: Setting, options: IcarlOptions) -> None:
        super().__init__(setting, options)
        self.register_buffer("means", torch.zeros(0, self.network.width))

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.means = widened(self.means, task.classes)

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        """BCE of every class: new ones with their labels, old ones with σ(z⁻), whatever the image."""
        logits = self.network(batch.images)
        if not batch.targets:
            return {"classification": self.classification(logits, batch.labels)}
        if self.options.loss == "ce":
            told = softened_divergence(logits[:, : self.known], batch.targets["logits"], 1.0)
            return {"classification": self.classification(logits, batch.labels), "distillation": told}
        new = functional.one_hot(batch.labels, logits.shape[1])[:, self.known :]
        wanted = torch.cat([batch.targets["logits"].float().sigmoid(), new], dim=1)
        return {"classification": functional.binary_cross_entropy_with_logits(logits.float(), wanted)}

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        features, labels = self.described(data.images), data.labels.to(self.means.device)
        self.means[task.first :] = class_means(features, labels, task.labels)  # for classes without an exemplar
        share = self.options.buffer // len(self.means)
        chosen = in_order(labels, lambda positions: herded(features[positions], share)).to(data.labels.device)
        add_classes(self.memory, data.where(chosen), len(self.means))
        self.look_again()
        self.teacher = None

    def described(self, images: Tensor) -> Tensor:
        """φ of uint8 images."""
        return unit(self.setting.outputs(self.network.feature, images, self.means.device))

    def look_again(self) -> None:
        """Recompute class means from the current features of exemplars and, with flips, of their mirror images."""
        held = self.memory.everything()
        views = [held.images, held.images.flip(3)] if self.setting.mirrors else [held.images]
        if len(held.labels):
            features = torch.stack([self.described(view) for view in views]).mean(dim=0)
            for label in held.labels.unique().tolist():
                self.means[label] = features[held.labels == label].mean(dim=0)
        self.means = unit(self.means)

    def predict(self, images: Tensor) -> Tensor:
        return nearness(self.network.feature(images), self.means)

    def parts(self) -> dict[str, Part]:
        return {HEADS: lambda _, tokens: self.network.head(self.network.decode(tokens))}

    def prototype_bytes(self) -> int:
        return super().prototype_bytes() + self.means.nbytes
