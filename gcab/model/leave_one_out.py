"""What a discriminant would say of images that it had not learned, from its sums alone.

Legend, beside that of `gcab/model/gaussians.py`: Σ⁻¹ is (Σ + r)⁻¹; an image of class c has d = x - μ_c and the leverage
h. Without it Σ is less by k d dᵀ, where k = n_c / (n_c - 1) / n, and μ_c is less by ε d, where ε = 1 / (n_c - 1).
"""

import math

import torch
from torch import Tensor

from gcab.model.gaussians import LEAST, NORM, RAREST, System


@torch.no_grad()
def simulated(system: System, images: int) -> Tensor:
    """Random scores of new images of each class, (classes, images, classes), drawn from the fitted Gaussians.

    Training images fit too well, which is corrected as by leave-one-out: without an image of leverage h, its
    class's scores would spread 1 / (1 - h) times as far, around a mean to which the image did not contribute.
    """
    weight, bias, freedom, shrinkage = system.rule
    centres = system.means @ weight  # (classes, classes): mean scores of each class, without b
    deviations = random_deviations(centres - system.r * weight.T @ weight, images)  # of covariance weightᵀ Σ weight
    epsilon = system.mean_variance / (1 - system.mean_variance).clamp_min(0.5)
    left = (1 - (1 + epsilon) * freedom / system.n).clamp_min(LEAST)  # 1 - h, of an image of each class
    centres = centres - torch.diag(freedom * epsilon * (1 + NORM * epsilon) / left)
    return shrinkage * (centres[:, None] + deviations / left[:, None, None] + bias)


def random_deviations(covariance: Tensor, images: int) -> Tensor:
    """Gaussian vectors (images, classes) with this covariance, the same at every call."""
    random = torch.Generator().manual_seed(0)
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    normal = torch.randn(images, len(covariance), generator=random, dtype=torch.float64).to(covariance.device)
    return (normal * values.clamp_min(0).sqrt()) @ vectors.T


@torch.no_grad()
def left_out(system: System, x: Tensor, labels: Tensor) -> Tensor:
    """Leave-one-out scores (n, classes) of learned images: μᵀ Σ⁻¹ x + b, where Σ, μ_c and the prior lack the image."""
    weight, bias, freedom, shrinkage = system.rule
    own, counts = (torch.arange(len(labels), device=labels.device), labels), system.counts[labels]
    d = x - system.means[labels]
    epsilon = 1 / (counts - 1).clamp_min(0.5)
    k = (1 + epsilon) / system.n
    among, dd = d @ weight, system.squared(d)  # μᵀ Σ⁻¹ d, dᵀ Σ⁻¹ d
    mine = among[own]  # μ_cᵀ Σ⁻¹ d
    across = dd + mine  # xᵀ Σ⁻¹ d

    # Sherman-Morrison: without the image, Σ⁻¹ is more by a Σ⁻¹ d dᵀ Σ⁻¹.
    a = k / (1 - k * dd).clamp_min(LEAST)
    scores = x @ weight + bias + a[:, None] * among * (across[:, None] - NORM * among)

    # Its own μ_c is less by ε d, whose products are with the new Σ⁻¹: Σ⁻¹ d has become (1 + a dᵀ Σ⁻¹ d) Σ⁻¹ d.
    scores[own] += epsilon * (1 + a * dd) * (2 * NORM * mine - across - NORM * epsilon * dd)

    # The mean of n_c - 1 images varies more, and the class is rarer.
    more_variance = epsilon - system.mean_variance[labels]
    scores[own] += NORM * freedom * more_variance + torch.log1p(-1 / counts).clamp_min(math.log(RAREST))
    return shrinkage * scores
