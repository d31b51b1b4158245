"""Gaussian classes with a shared covariance, and the linear classifier that they give.

Legend: x = an image's standardised features (F,), n = number of images, n_c = those of class c, μ_c = their mean,
Σ = the covariance of x around its μ_c, r = ridge.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

PROBES = 32  # random vectors of Hutchinson's trace estimator
RAREST = 1e-6  # prior of a class without images
LEAST = 1e-3  # lower bound of 1 - h, with h the leverage of an image
# Factor γ on μᵀ Σ⁻¹ μ in b. It would be 1/2 if Σ said how images of a class vary; but a class's own score varies three
# times as far, as the strength of an image's features does. Chosen on held-out images (docs/eye.md).
NORM = 0.3


@dataclass(frozen=True)
class System:
    """Gaussian classes of standardised features with a shared covariance."""

    factor: Tensor  # Cholesky factor of Σ + r
    means: Tensor  # (classes, F): μ_c, standardised
    mean: Tensor  # (F,): of the raw features
    scale: Tensor  # (F,): 1 / deviation of the raw features
    counts: Tensor  # (classes,): n_c, in double precision
    r: float  # ridge
    n: int  # images that Σ is of

    @cached_property
    def mean_variance(self) -> Tensor:
        """1 / n_c, the variance of μ_c in units of Σ: (classes,); 0 for a class without images."""
        return torch.where(self.counts > 0, 1 / self.counts.clamp_min(1), 0.0)

    @cached_property
    def rule(self) -> "Rule":
        """The linear classifier; the variance of a mean adds `freedom` / n_c to μ_cᵀ (Σ + r)⁻¹ μ_c, subtracted here."""
        weight, freedom = self.solve(self.means.T), self.freedom()
        squares = (self.means.T * weight).sum(dim=0) - freedom * self.mean_variance
        prior = (self.counts / self.counts.sum()).clamp_min(RAREST)  # of a class: its share of the images
        return Rule(weight, prior.log() - NORM * squares, freedom, max(1 - (freedom + 1) / self.n, LEAST))

    def freedom(self) -> float:
        """tr (Σ + r)⁻¹ Σ, the ridge's effective degrees of freedom, by Hutchinson's estimator."""
        random = torch.Generator().manual_seed(0)
        signs = torch.randint(2, (len(self.scale), PROBES), generator=random).double().mul_(2).sub_(1)
        signs = signs.to(self.scale.device) * (self.scale > 0)[:, None]
        return float((signs.square().sum() - self.r * (signs * self.solve(signs)).sum()) / PROBES)

    def solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right, self.factor)

    def squared(self, rows: Tensor) -> Tensor:
        """dᵀ (Σ + r)⁻¹ d of each row d."""
        return torch.linalg.solve_triangular(self.factor, rows.T, upper=False).square().sum(dim=0)


class Rule(NamedTuple):
    """A linear classifier of standardised features: scores are shrinkage · (xᵀ `weight` + `bias`)."""

    weight: Tensor  # (Σ + r)⁻¹ μ, (F, classes)
    bias: Tensor  # (classes,)
    freedom: float  # effective degrees of freedom
    shrinkage: float  # 1 - h, with h the mean leverage of an image: shrinks scores by what images add to their own
