"""Class statistics in each task's own feature space: a second opinion on which task an image belongs to.

Not in the paper. A head that never saw another task's images cannot say "not mine"; how far an image's features lie
from the task's class means can. The cascade brings new features into the old space, so they never need updating.
"""

from typing import cast

import torch
from torch import Tensor, nn


class TaskStatistics(nn.Module):
    """Mean feature of every class of one task, and one variance per feature shared by them."""

    means: Tensor
    variance: Tensor

    def __init__(self, classes: int, tokens: int, width: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(classes, tokens * width))
        self.register_buffer("variance", torch.ones(tokens * width))

    @torch.no_grad()
    def fit(self, features: Tensor, labels: Tensor) -> None:
        """`features` (n, N, D) are those of the task's training images, `labels` count from the task's first class."""
        flat = features.float().flatten(1)
        for label in range(len(self.means)):
            self.means[label] = flat[labels == label].mean(dim=0)
        spread = (flat - self.means[labels]).square().mean(dim=0)
        self.variance.copy_(spread + 1e-3 * spread.mean() + 1e-12)

    def forward(self, features: Tensor) -> Tensor:
        """Squared distance to the nearest class mean, in standard deviations, averaged over features: (B,)."""
        scale, centre = self.variance.rsqrt(), self.means.mean(dim=0)  # centred, because cdist subtracts large squares
        flat, means = (features.float().flatten(1) - centre) * scale, (self.means - centre) * scale
        return torch.cdist(flat, means).square().amin(dim=1) / flat.shape[1]


class ClassStatistics(nn.Module):
    """The statistics of all tasks."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.tokens, self.width = tokens, width
        self.tasks = nn.ModuleList()

    def grow(self, classes: int) -> None:
        self.tasks.append(TaskStatistics(classes, self.tokens, self.width))

    def fit_newest(self, features: Tensor, labels: Tensor) -> None:
        cast(TaskStatistics, self.tasks[-1]).fit(features, labels)

    def log_probability(self, spaces: list[Tensor], weight: float) -> Tensor:
        """log P(task | image), (T, B), from the features as each task would see them."""
        distances = torch.stack([task(features) for task, features in zip(self.tasks, spaces, strict=True)])
        return torch.log_softmax(-0.5 * weight * distances, dim=0)

    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())
