"""Class statistics: where each class lies in the encoder's feature space, carried along as the encoder drifts.

Not in the paper. A head that never saw another task's images cannot say "not mine"; a class's mean feature can be
compared with every other class's. Nothing of an image is kept: two vectors per class.

Legend: x = an image's features averaged over the cells of a small grid (F numbers), μ_c = mean x of class c,
Σ = covariance of x within the classes of the newest task.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

GRID = 2  # cells per side: position matters, but not to the token


class ClassStatistics(nn.Module):
    """Gaussian classes with one covariance: log P(x | c) = x·Σ⁻¹μ_c - ½ μ_c·Σ⁻¹μ_c, but for what all classes share."""

    compiled = ("forward",)
    means: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.side = round(tokens**0.5)
        self.cells = min(GRID, self.side) ** 2
        self.register_buffer("means", torch.zeros(0, self.cells, width))  # μ_c (classes, cells, D)
        self.register_buffer("weight", torch.zeros(0, self.cells * width))  # Σ⁻¹ μ_c
        self.register_buffer("bias", torch.zeros(0))

    def grow(self, classes: int) -> None:
        """Room for the classes of a new task."""
        for name in ("means", "weight", "bias"):
            held = getattr(self, name)
            setattr(self, name, torch.cat([held, held.new_zeros(classes, *held.shape[1:])]))

    def pool(self, features: Tensor) -> Tensor:
        """Tokens (B, N, D) averaged over the cells of the grid: (B, cells, D)."""
        image = features.float().transpose(1, 2).unflatten(2, (self.side, self.side))
        return functional.adaptive_avg_pool2d(image, min(GRID, self.side)).flatten(2).transpose(1, 2)

    @torch.no_grad()
    def transport(self, before: Tensor, after: Tensor) -> None:
        """Move all means as the encoder moved, judged by the pooled features of the same images before and after."""
        motion = linear_motion(before.flatten(0, 1), after.flatten(0, 1))
        self.means.copy_(with_one(self.means.double()) @ motion)

    @torch.no_grad()
    def fit(self, pooled: Tensor, labels: Tensor) -> None:
        """Learn the newest task's classes from the pooled features of its training images."""
        for label in labels.unique():
            self.means[label] = pooled[labels == label].mean(dim=0)
        spread = (pooled - self.means[labels]).flatten(1).double()
        means = self.means.flatten(1).double()
        weight = torch.linalg.solve(shrunk_covariance(spread), means.T).T
        self.weight.copy_(weight)
        self.bias.copy_(-0.5 * (weight * means).sum(dim=1))

    def forward(self, features: Tensor) -> Tensor:
        """log P(x | c) up to a constant of the image: (B, classes)."""
        # In double precision, which no autocast rounds: classes differ in the last digits of large numbers.
        x = self.pool(features).flatten(1).double()
        return functional.linear(x, self.weight.double(), self.bias.double()).float()

    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())


def with_one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)


def linear_motion(before: Tensor, after: Tensor) -> Tensor:
    """Ridge regression (D + 1, D) from features before to features after, drawn towards "nothing turned"."""
    x, y = with_one(before.double()), after.double()
    gram = x.T @ x
    ridge = torch.diag(0.01 * gram.diagonal().mean() * (torch.arange(len(gram), device=x.device) < len(gram) - 1))
    return torch.linalg.solve(gram + ridge, x.T @ y + ridge[:, :-1])


def shrunk_covariance(spread: Tensor) -> Tensor:
    """Covariance of centred rows, drawn towards a multiple of the identity (oracle approximating shrinkage)."""
    count, size = spread.shape
    covariance = spread.T @ spread / count
    trace, squares = covariance.trace(), covariance.square().sum()
    share = ((1 - 2 / size) * squares + trace**2) / ((count + 1 - 2 / size) * (squares - trace**2 / size)).clamp_min(
        1e-12
    )
    share = share.clamp(1e-4, 1.0)
    floor = share * trace / size + 1e-9  # features that never vary must not divide by zero
    return (1 - share) * covariance + floor * torch.eye(size, dtype=spread.dtype, device=spread.device)
