"""Class statistics: class means and one covariance in the encoder's feature space, transported as the encoder drifts.

Not in the paper. A head that never saw another task's images cannot say "not mine"; a class's mean feature can be
compared with every other class's. Nothing of an image is kept: a mean per class, and one scatter matrix for all.

Legend: x = an image's features averaged over the cells of a small grid (F numbers), μ_c = mean x of class c,
W = Σ (x - μ_c)(x - μ_c)ᵀ over the n images of all classes, Σ = W / n, shrunk, M = linear map that models the drift.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gcab.model.exact import Exact, at
from gcab.model.rows import drop_row
from gcab.model.triangle import packed, symmetric
from gcab.sizes import Size, sides

GRID = 2  # pooling cells per side, which keep a coarse position
RIDGE = 1e-3  # of the mean variance of a feature: shrinks M towards the identity


class ClassStatistics(Exact):
    """Gaussian classes with a shared covariance: log P(x | c) = x·Σ⁻¹μ_c - ½ μ_c·Σ⁻¹μ_c + constant of x."""

    purposes: ClassVar[dict[str, str]] = {
        "means": "statistics: the mean feature of each class",
        "weight": "statistics: the same means, ready to compare with",
        "bias": "statistics: the same means, ready to compare with",
        "scatter": "statistics: how features vary within classes, summed over all images",
        "images": "statistics: number of images in that sum",
    }

    compiled = ("forward",)
    means: Tensor
    weight: Tensor
    bias: Tensor
    scatter: Tensor
    images: Tensor

    def __init__(self, grid: Size, width: int, pooled: bool = False) -> None:
        """`pooled`: Σ is estimated over all tasks; else over the newest, as in models before 0.2.0."""
        super().__init__()
        self.grid, self.pooled = sides(grid), pooled
        self.layout = min(GRID, self.grid[0]), min(GRID, self.grid[1])
        self.cells = math.prod(self.layout)
        size = self.cells * width
        self.register_buffer("means", torch.zeros(0, self.cells, width))  # μ_c (classes, cells, D)
        self.register_buffer("weight", torch.zeros(0, size))  # Σ⁻¹ μ_c
        self.register_buffer("bias", torch.zeros(0))
        if pooled:
            self.register_buffer("scatter", torch.zeros(size * (size + 1) // 2))  # W, lower triangle
            self.register_buffer("images", torch.zeros((), dtype=torch.int64))  # n

    def grow(self, classes: int) -> None:
        """Append zeros for the classes of a new task."""
        for name in ("means", "weight", "bias"):
            held = getattr(self, name)
            setattr(self, name, torch.cat([held, held.new_zeros(classes, *held.shape[1:])]))

    def pool(self, features: Tensor) -> Tensor:
        """Tokens (B, N, D) averaged over the cells of the grid: (B, cells, D)."""
        image = features.float().transpose(1, 2).unflatten(2, self.grid)
        return functional.adaptive_avg_pool2d(image, self.layout).flatten(2).transpose(1, 2)

    def spread(self, cells: Tensor) -> Tensor:
        """Upsample cells (B, cells, D) to tokens (B, N, D): every token gets the value of its cell."""
        image = cells.transpose(1, 2).unflatten(2, self.layout)
        return functional.interpolate(image, self.grid).flatten(2).transpose(1, 2)

    @torch.no_grad()
    def transport(self, before: Tensor, after: Tensor) -> None:
        """Move means and scatter as the encoder drifted, by pooled features of the same images before and after."""
        motion = Motion(at(before, self.device).flatten(1), at(after, self.device).flatten(1))
        self.means.copy_(motion(self.means.flatten(1).double()).view_as(self.means))
        if self.pooled:  # W <- Mᵀ W M + n times the residual covariance
            moved = motion.turn.T @ symmetric(self.scatter) @ motion.turn
            self.scatter.copy_(packed(moved + int(self.images) * motion.unexplained))

    @torch.no_grad()
    def fit(self, pooled: Tensor, labels: Tensor, known: Tensor | None = None) -> None:
        """Add the pooled features of training images; `known`: number of images (classes,) of each learned before.

        A class learned before gets the mean of all its images, and W the scatter between its old and its new mean.
        """
        pooled, labels = at(pooled, self.device), at(labels, self.device)
        means, apart = self.means.clone(), list[Tensor]()
        for label in labels.unique().tolist():
            own, before = pooled[labels == label], 0 if known is None else int(known[label])
            means[label], share = own.mean(dim=0), len(own) / (before + len(own))
            if before:
                apart.append((before * share) ** 0.5 * (means[label] - self.means[label]))
            self.means[label].lerp_(means[label], share)
        spread = torch.stack([*(pooled - means[labels]), *apart]).flatten(1).double()
        scatter, images = spread.T @ spread, len(pooled)
        if self.pooled:
            scatter, images = scatter + symmetric(self.scatter), images + int(self.images)
            self.scatter.copy_(packed(scatter))
            self.images.fill_(images)
        self._solve(shrunk(scatter / images, images))

    @torch.no_grad()
    def join(self, label: int, other: int, counts: tuple[int, int]) -> None:
        """Merge two classes with `counts` images: the mean is that of all, W gains the scatter between both means."""
        share = counts[1] / sum(counts)
        apart = (self.means[other] - self.means[label]).flatten().double()
        self.means[label].lerp_(self.means[other], share)
        self.weight[label].lerp_(self.weight[other], share)
        self.bias[label] = -0.5 * (self.weight[label] * self.means[label].flatten()).sum()
        drop_row(self, other, "means", "weight", "bias")
        if self.pooled:
            scatter = symmetric(self.scatter) + counts[0] * share * torch.outer(apart, apart)
            self.scatter.copy_(packed(scatter))
            self._solve(shrunk(scatter / int(self.images), int(self.images)))

    def _solve(self, covariance: Tensor) -> None:
        """Update the classifier: Σ⁻¹ μ_c and -½ μ_c·Σ⁻¹μ_c of all classes."""
        means = self.means.flatten(1).double()
        weight = torch.linalg.solve(covariance, means.T).T
        self.weight.copy_(weight)
        self.bias.copy_(-0.5 * (weight * means).sum(dim=1))

    def forward(self, features: Tensor) -> Tensor:
        """log P(x | c) up to a constant of the image: (B, classes)."""
        # In double precision, which autocast leaves alone: classes differ in the last digits of large numbers.
        x = at(self.pool(features), self.device).flatten(1).double()
        logits = functional.linear(x, self.weight.double(), self.bias.double()).float()
        return at(logits, features.device)

    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())


class Motion:
    """A linear model of the drift: y ≈ ȳ + (x - x̄) M, by ridge regression shrunk towards the identity."""

    def __init__(self, before: Tensor, after: Tensor) -> None:
        x, y = before.double(), after.double()
        self.origin, self.target = x.mean(dim=0), y.mean(dim=0)
        x, y = x - self.origin, y - self.target
        gram = x.T @ x
        ridge = RIDGE * gram.diagonal().mean().clamp_min(1e-12) * torch.eye(len(gram), dtype=x.dtype, device=x.device)
        self.turn = torch.linalg.solve(gram + ridge, x.T @ y + ridge)  # M
        rest = y - x @ self.turn
        self.unexplained = rest.T @ rest / len(rest)

    def __call__(self, x: Tensor) -> Tensor:
        return self.target + (x - self.origin) @ self.turn


def shrunk(covariance: Tensor, images: int) -> Tensor:
    """A covariance shrunk towards a multiple of the identity (oracle approximating shrinkage)."""
    size = len(covariance)
    trace, squares = covariance.trace(), covariance.square().sum()
    share = ((1 - 2 / size) * squares + trace**2) / ((images + 1 - 2 / size) * (squares - trace**2 / size)).clamp_min(
        1e-12
    )
    share = share.clamp(1e-4, 1.0)
    floor = share * trace / size + 1e-9  # features that never vary must not divide by zero
    return (1 - share) * covariance + floor * torch.eye(size, dtype=covariance.dtype, device=covariance.device)
