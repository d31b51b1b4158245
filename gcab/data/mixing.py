"""CutMix: a box of an image is replaced by what another image has there, and so is its share of the label.

Not in the paper (Yun et al., ICCV 2019). Partners are half a batch apart: where several processes share a batch, each
has both.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Boxes(NamedTuple):
    """Every random decision for a batch, one row per image: a square around a point, all as shares of the image."""

    area: Tensor  # (B,); 0: none
    down: Tensor  # (B,)
    across: Tensor  # (B,)


class Mixed(NamedTuple):
    """The partners that were mixed into each image of a batch."""

    labels: Tensor  # (B,) of the other image
    shares: Tensor  # (B,) of the image itself, from 0 to 1


def draw_boxes(batch: int, probability: float, generator: torch.Generator) -> Boxes:
    """Random boxes that leave a share λ ~ U(0, 1) of an image: α = 1 in the publication."""
    chance, area, down, across = torch.rand(4, batch, generator=generator, device=generator.device)
    return Boxes(torch.where(chance < probability, area, 0.0), down, across)


def inside(boxes: Boxes, height: int, width: int) -> Tensor:
    """Mask (..., height, width) of the pixels inside the boxes."""
    half = boxes.area.sqrt() / 2
    rows, columns = (
        (torch.arange(length, device=half.device) + 0.5 - place[..., None] * length).abs() < half[..., None] * length
        for place, length in ((boxes.down, height), (boxes.across, width))
    )
    return rows[..., :, None] & columns[..., None, :]


def mix(images: Tensor, labels: Tensor, boxes: Boxes) -> tuple[Tensor, Mixed]:
    """CutMix images (B, C, H, W), and the labels and shares to mix in the loss."""
    replaced, apart = inside(boxes, *images.shape[2:]), len(images) // 2
    mixed = torch.where(replaced[:, None], images.roll(apart, dims=0), images)
    return mixed, Mixed(labels.roll(apart), 1 - replaced.float().mean(dim=(1, 2)))
