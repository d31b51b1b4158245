"""Semantic drift compensation: prototypes of old classes move as new images near them did (Yu et al., CVPR 2020).

Legend: f = unit feature now, f⁻ = before the task, μ = prototypes.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributed.nn.functional import all_gather
from torch.nn import functional

from gcab.data.tasks import Batch, Part, Progress, Setting, Task, TaskImages
from gcab.errors import check_options
from gcab.methods.card import Card
from gcab.methods.distillation import Taught, softened_divergence
from gcab.methods.finetune import Finetune
from gcab.methods.herding import class_means, nearness, unit, widened
from gcab.methods.method import cross_entropy
from gcab.methods.space import Between, space
from gcab.model.heads import CosineHead
from gcab.parallel.ranks import gathered, mean, rows, uniform, world

UNCOMPENSATED = "prototypes, not compensated"  # a part


@dataclass(frozen=True)
class SdcOptions:
    """The paper's embedding needs a network trained on half of all classes; ADC (CVPR 2024) has SDC on a classifier."""

    embedding: Literal["classifier", "triplet"] = "classifier"  # paper: triplet
    sigma: float = 0.2  # of the weights of new images; the authors' CIFAR script
    scale: float = 10.0  # of the classifier's cosines; ours
    distillation: float = 10.0  # weight of learning without forgetting, T = 2; ADC's
    temperature: float = 2.0  # of it
    regulariser: float = 1.0  # weight of ½ Σ |f - f⁻|² beside the triplets; paper, embedding LwF
    margin: float = 0.0  # of the triplets; the authors' script
    uncompensated: bool = (
        True  # keep prototypes as they were, too, and show what they would decide; as many bytes again
    )

    def __post_init__(self) -> None:
        check_options(self, ("sigma", "scale", "temperature"), ("distillation", "regulariser", "margin"))


class Sdc(Taught, Finetune):
    """Predicts the class of the nearest prototype; prototypes are all it keeps of old classes."""

    Options: ClassVar[type[Any]] = SdcOptions
    summary = "semantic drift compensation: class means move as new images near them do; stores no image"
    card: ClassVar[Card] = Card(
        source="Yu et al., CVPR 2020",
        stores="a mean feature per class, and once more as it was (`options.uncompensated`)",
        differs="a cosine classifier with LwF, as in ADC (CVPR 2024), no triplets (`options.embedding`) or warm start",
    )
    search_space = space(sigma=Between(0.05, 1), distillation=Between(1, 100))
    purposes: ClassVar[dict[str, str]] = {
        "prototypes": "mean feature of each class",
        "original": "mean feature of each class as it was after its own task",
    }
    options: SdcOptions
    prototypes: Tensor
    original: Tensor

    def __init__(self, setting: Setting, options: SdcOptions) -> None:
        super().__init__(setting, options)
        self.network.head = CosineHead(self.network.width, options.scale)
        self.register_buffer("prototypes", torch.zeros(0, self.network.width))
        self.register_buffer("original", torch.zeros(0, self.network.width))

    def grow(self, task: Task) -> None:
        if self.options.embedding == "classifier":
            super().grow(task)
        self.prototypes = widened(self.prototypes, task.classes)
        if self.options.uncompensated:
            self.original = widened(self.original, task.classes)

    def batch(self, batch: Batch) -> Batch:
        if self.teacher is None:
            return batch
        if self.options.embedding == "classifier":
            return replace(batch, targets={"logits": self.teacher(batch.images)[:, : self.known]})
        return replace(batch, targets={"features": unit(self.teacher.module.feature(batch.images))})

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        return self.classifier(batch) if self.options.embedding == "classifier" else self.triplets(batch)

    def classifier(self, batch: Batch) -> dict[str, Tensor]:
        """CE over the new classes, and T² KL to the old answers over the old ones."""
        logits = self.network(batch.images)
        terms = {"classification": cross_entropy(logits[:, self.known :], batch.labels, first=self.known)}
        if batch.targets:
            told = softened_divergence(logits[:, : self.known], batch.targets["logits"], self.options.temperature)
            terms["distillation"] = self.options.distillation * told
        return terms

    def triplets(self, batch: Batch) -> dict[str, Tensor]:
        """max(0, |f - f₊| - |f - f₋| + margin) of random other images, and ½ Σ |f - f⁻|²."""
        features = unit(self.network.feature(batch.images))
        terms = {"classification": triplet_loss(features, batch.labels, self.options.margin)}
        if batch.targets:
            moved = (features - batch.targets["features"]).square().sum() * world()
            terms["drift"] = self.options.regulariser / 2 * moved
        return terms

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        device = self.prototypes.device
        now = unit(self.setting.outputs(self.network.feature, data.images, device))
        if self.teacher is not None:
            before = unit(self.setting.outputs(self.teacher.module.feature, data.images, device))
            old = self.prototypes[: task.first]
            old.copy_(compensated(old, before, now, self.options.sigma))
        new = class_means(now, data.labels.to(device), task.labels)
        self.prototypes[task.first :] = new
        if self.options.uncompensated:
            self.original[task.first :] = new
        self.teacher = None

    def predict(self, images: Tensor) -> Tensor:
        return nearness(self.network.feature(images), self.prototypes)

    def parts(self) -> dict[str, Part]:
        if not self.options.uncompensated:
            return {}
        return {UNCOMPENSATED: lambda _, tokens: nearness(self.network.decode(tokens), self.original)}

    def prototype_bytes(self) -> int:
        return super().prototype_bytes() + self.prototypes.nbytes + self.original.nbytes


def compensated(prototypes: Tensor, before: Tensor, now: Tensor, sigma: float) -> Tensor:
    """μ + Σ w_i (f_i - f⁻_i) with w = softmax(-|f⁻ - μ|² / 2σ²), as plain weights of far images are 0 / 0."""
    weights = (-torch.cdist(prototypes, before).square() / (2 * sigma**2)).softmax(dim=1)  # (classes, n)
    return prototypes + weights @ (now - before)


def triplet_loss(features: Tensor, labels: Tensor, margin: float) -> Tensor:
    """The mean over images that have another of their class in the batch, and one of another class."""
    others, of_others = of_all_processes(features), gathered(labels)
    number = torch.arange(len(of_others), device=labels.device)
    same = labels[:, None] == of_others
    positive = same & (rows(number)[:, None] != number)
    keys = uniform(len(labels), 2, len(of_others), device=labels.device)
    near, far = (
        keys[:, turn].masked_fill(~allowed, -1.0).argmax(dim=1) for turn, allowed in enumerate((positive, ~same))
    )
    complete = (positive.any(dim=1) & (~same).any(dim=1)).float()
    to_near, to_far = (functional.pairwise_distance(features, others[pick]) for pick in (near, far))
    lost = functional.relu(to_near - to_far + margin) * complete
    return lost.sum() / mean(complete.sum()).clamp_min(1 / world())


def of_all_processes(features: Tensor) -> Tensor:
    """`gathered`, with a gradient for the rows of every process."""
    return features if world() == 1 else torch.stack(all_gather(features), dim=1).flatten(0, 1)
