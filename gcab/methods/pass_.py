"""PASS: prototypes with noise stand in for old classes, rotations make features general (Zhu et al., CVPR 2021).

Legend: f = feature, f⁻ = before the task, μ = prototypes, r = their radius; a step sees every image four times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.errors import check_options
from gcab.methods.card import Card, Compass
from gcab.methods.distillation import Taught
from gcab.methods.finetune import Finetune
from gcab.methods.herding import class_means, widened
from gcab.methods.method import cross_entropy
from gcab.methods.space import Between, space
from gcab.model.projectors import drift_distance
from gcab.parallel.ranks import normal, uniform

ROTATIONS = 4


@dataclass(frozen=True)
class PassOptions:
    """The authors' settings."""

    temperature: float = 0.1  # of every softmax
    prototypes: float = 10.0  # weight of the noisy prototypes' loss
    distillation: float = 10.0  # weight of |F - F⁻|₂, the norm over the whole batch

    def __post_init__(self) -> None:
        check_options(self, ("temperature",), ("prototypes", "distillation"))


class Pass(Taught, Finetune):
    """A mean per class and one radius are all it keeps of old classes."""

    Options: ClassVar[type[Any]] = PassOptions
    summary = "prototype augmentation and rotations (PASS), four times the images per step; stores no image"
    card: ClassVar[Card] = Card(
        source="Zhu et al., CVPR 2021",
        stores="a mean feature per class, one radius",
        differs="the first task is not half of all classes; prototypes are of images that are not augmented",
        compass=Compass(episodic_memory="supervised"),
    )
    square = True
    search_space = space(temperature=Between(0.03, 0.3), prototypes=Between(1, 100), distillation=Between(1, 100))
    purposes: ClassVar[dict[str, str]] = {
        "prototypes": "mean feature of each class",
        "radius": "mean deviation of the first task's features from their class means",
    }
    options: PassOptions
    prototypes: Tensor
    radius: Tensor

    def __init__(self, setting: Setting, options: PassOptions) -> None:
        super().__init__(setting, options)
        self.register_buffer("prototypes", torch.zeros(0, self.network.width))
        self.register_buffer("radius", torch.zeros(()))

    def grow(self, task: Task) -> None:
        """Four outputs per class: one for each rotation."""
        self.network.grow(ROTATIONS * task.classes)
        self.prototypes = widened(self.prototypes, task.classes)

    @classmethod
    def passes(cls, options: Any, fresh: int, classes: Sequence[int]) -> float:
        return ROTATIONS * super().passes(options, fresh, classes)

    def batch(self, batch: Batch) -> Batch:
        """Class 4y + k for the image turned by k quarters, after augmentation so that no border shows."""
        images = torch.cat([batch.images.rot90(quarter, (2, 3)) for quarter in range(ROTATIONS)])
        labels = torch.cat([ROTATIONS * batch.labels + quarter for quarter in range(ROTATIONS)])
        targets = {} if self.teacher is None else {"features": self.teacher.module.feature(images)}
        return replace(batch, images=images, labels=labels, targets=targets)

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        features = self.network.feature(batch.images)
        terms = {"classification": self.classified(features, batch.labels)}
        if batch.targets:
            noisy, labels = self.augmented(len(features) // ROTATIONS)
            terms["prototypes"] = self.options.prototypes * self.classified(noisy, ROTATIONS * labels)
            moved = drift_distance("l2", features, batch.targets["features"])
            terms["distillation"] = self.options.distillation * moved
        return terms

    def classified(self, features: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.network.head(features).float() / self.options.temperature, labels)

    def augmented(self, count: int) -> tuple[Tensor, Tensor]:
        """Noisy prototypes μ_c + r ε of random old classes, before the LayerNorm of any head, and their labels."""
        device = self.prototypes.device
        labels = (uniform(count, device=device) * self.known).long().clamp_max(self.known - 1)
        return self.prototypes[labels] + self.radius * normal(count, self.network.width, device=device), labels

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        device = self.prototypes.device
        features = self.setting.outputs(self.network.feature, data.images, device)
        labels = data.labels.to(device)
        self.prototypes[task.first :] = class_means(features, labels, task.labels)
        if task.index == 0:
            spreads = [features[labels == label].var(dim=0, correction=0).mean() for label in task.labels]
            self.radius.copy_(torch.stack(spreads).mean().sqrt())  # r² = mean over classes of trace(Cov) / D
        self.teacher = None

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)[:, ::ROTATIONS]

    def prototype_bytes(self) -> int:
        return super().prototype_bytes() + self.prototypes.nbytes + self.radius.nbytes
