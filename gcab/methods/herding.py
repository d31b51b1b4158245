"""Class-balanced memories, filled at the end of a task, and herding, which selects their images by features."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gcab.data.tasks import Batch, Setting, TaskImages
from gcab.methods.distillation import Taught
from gcab.methods.memory import Memory


class AmongExemplars(Taught):
    """Shuffles exemplars among the task's images, and distills the logits from before the task on all of them."""

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.memory = Memory(options.buffer, setting.image_size)

    def among(self) -> TaskImages | None:
        return self.memory.everything() if self.known else None

    def batch(self, batch: Batch) -> Batch:
        if self.teacher is None:
            return batch
        return replace(batch, targets={"logits": self.teacher(batch.images)[:, : self.known]})


def unit(features: Tensor) -> Tensor:
    return functional.normalize(features.float(), dim=-1)


def nearness(features: Tensor, means: Tensor) -> Tensor:
    """-|φ - μ_c|² of unit features φ: (B, classes); by differences, as products would be of low precision on a GPU."""
    return -(unit(features)[:, None] - means).square().sum(dim=-1)


def class_means(features: Tensor, labels: Tensor, classes: range) -> Tensor:
    """The mean over the images of each class: (classes, D)."""
    return torch.stack([features[labels == label].mean(dim=0) for label in classes])


def widened(rows_of_classes: Tensor, classes: int) -> Tensor:
    """A per-class tensor with a row of zeros appended for each new class."""
    return torch.cat([rows_of_classes, rows_of_classes.new_zeros(classes, *rows_of_classes.shape[1:])])


def herded(features: Tensor, count: int) -> Tensor:
    """Positions of images whose running mean stays closest to that of all: p_k = argmin |μ - (φ(x) + Σ φ(p_j)) / k|.

    A smaller count gives a prefix of these (iCaRL, algorithm 4); φ are the unit features (n, D) of one class.
    """
    mean, total = features.mean(dim=0), torch.zeros_like(features[0])
    taken = torch.zeros(len(features), dtype=torch.bool, device=features.device)
    chosen = []
    for number in range(1, min(count, len(features)) + 1):
        distance = torch.linalg.vector_norm(mean - (features + total) / number, dim=1)
        best = distance.masked_fill(taken, torch.inf).argmin()
        taken[best] = True
        total = total + features[best]
        chosen.append(best)
    return torch.stack(chosen) if chosen else torch.empty(0, dtype=torch.long, device=features.device)


def in_order(labels: Tensor, order_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Positions of images, class by class, each in the order that `order_of` gives those of its class."""
    classes = [(labels == label).nonzero().flatten() for label in labels.unique()]
    return torch.cat([positions[order_of(positions)] for positions in classes])


def number_within_class(labels: Tensor) -> Tensor:
    """For each image, how many before it are of the same class."""
    same = labels[:, None] == labels[None, :]
    return same.tril(diagonal=-1).sum(dim=1)


def add_classes(memory: Memory, new: TaskImages, classes: int, **columns: Tensor) -> None:
    """Rebalance a memory to floor(places / classes) images per class: of old and new classes the first are kept.

    `new` images are sorted by priority, `columns` are those of the new images; remaining places stay empty.
    """
    held, device = memory.everything(), memory.labels.device
    count = len(held.labels)
    both = {
        "images": torch.cat([held.images, new.images.to(device)]),
        "labels": torch.cat([held.labels, new.labels.to(device)]),
        **{name: torch.cat([getattr(memory, name)[:count], value.to(device)]) for name, value in columns.items()},
    }
    kept = number_within_class(both["labels"]) < memory.places // classes
    memory.rewrite(**{name: value[kept] for name, value in both.items()})
