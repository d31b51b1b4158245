"""Twelve perturbed views of an image, on which predictions agree if a network is certain (Bang et al., CVPR 2021)."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

Change = Callable[[Tensor], Tensor]  # of images (n, 3, H, W) as bytes


def perturbed(images: Tensor) -> Iterator[Tensor]:
    """The authors' fixed list: cutouts, mirror images, rotations, inversion, solarisation."""
    for change in PERTURBATIONS:
        yield change(images)


def cut_out(share: float, images: Tensor) -> Tensor:
    """A black box around a random point, of this share of the image's sides; the authors' sizes are for 32 pixels."""
    within = []
    for side in images.shape[2:]:
        pixel, centre = torch.arange(side, device="cpu"), torch.randint(side, (len(images), 1), device="cpu")
        within.append(((pixel - centre).abs() < share * side / 2).to(images.device))
    down, across = within  # (n, H) and (n, W)
    return images.masked_fill((down[:, :, None] & across[:, None, :])[:, None], 0)


def rotated(degrees: float, images: Tensor) -> Tensor:
    """Rotate by a random angle of at most `degrees`, black outside the image."""
    angle = torch.deg2rad((2 * torch.rand(len(images)) - 1) * degrees).to(images.device)
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    turn = torch.stack([torch.stack([cosine, -sine, zero], 1), torch.stack([sine, cosine, zero], 1)], 1)  # (n, 2, 3)
    grid = functional.affine_grid(turn, list(images.shape), align_corners=False)
    return functional.grid_sample(images.float(), grid, align_corners=False).round().to(torch.uint8)


def solarised(threshold: int, images: Tensor) -> Tensor:
    """Invert pixels that are at least as bright as a threshold."""
    return torch.where(images < threshold, images, 255 - images)


PERTURBATIONS: tuple[Change, ...] = (
    *(partial(cut_out, size / 32) for size in (8, 16, 24, 32)),
    lambda images: images.flip(3),
    lambda images: images.flip(2),
    partial(rotated, 45.0),
    partial(rotated, 90.0),
    lambda images: 255 - images,
    *(partial(solarised, threshold) for threshold in (128, 64, 32)),
)
