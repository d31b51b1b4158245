"""Base of pretrained encoders, which are frozen and resize images to the size that they were trained with."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.model.encoder import EncoderConfig
from gcab.model.lesson_cache import CachedInLesson
from gcab.pretrained.description import Description


class PretrainedEncoder(CachedInLesson, ABC):
    """An encoder that was trained elsewhere: `summary` for one vector an image, `forward` for tokens."""

    purposes: ClassVar[dict[str, str]] = {"": "pretrained encoder: turns an image into features; never learns"}
    on_host: ClassVar[bool] = False  # whether it can only be computed on the CPU

    def __init__(self, config: EncoderConfig, description: Description, width: int) -> None:
        """`width` is that of a token."""
        super().__init__()
        self.config = replace(config, width=width)
        self.description, self.grid = description, self.config.grid(description.crop)
        self.tokens = self.grid[0] * self.grid[1]

    @property
    @abstractmethod
    def summary_width(self) -> int:
        """Numbers in `summary`."""

    @abstractmethod
    def summary(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, S, S) of any size to one vector each, (B, summary_width)."""

    @abstractmethod
    def look(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, S, S) of any size to tokens (B, tokens, D)."""

    def forward(self, images: Tensor) -> Tensor:
        """`look`, cached during a lesson."""
        return self.cached(self.look, images)

    def summarised(self, images: Tensor) -> Tensor:
        """`summary`, cached during a lesson."""
        return self.cached(self.summary, images)

    def prepared(self, images: Tensor) -> Tensor:
        """Images resized and cropped to the centre as the encoder expects them, (B, 3, crop, crop)."""
        resize, crop = self.description.resize, self.description.crop
        if images.shape[2:] != (resize, resize):
            images = functional.interpolate(
                images, (resize, resize), mode="bicubic", align_corners=False, antialias=images.shape[-1] > resize
            )
        first = (resize - crop) // 2
        return images[:, :, first : first + crop, first : first + crop]

    def norms(self) -> Iterator[nn.Module]:
        """None, as all of them are frozen anyway."""
        return iter(())

    def train(self, mode: bool = True) -> "PretrainedEncoder":  # noqa: ARG002
        """Stay in eval mode when the owner is set to training mode."""
        return super().train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:  # noqa: ARG002
        return super().requires_grad_(False)


def pooling(grid: int, side: int) -> Tensor:
    """Adaptive average pooling of a square grid to `side` x `side` areas, as a matrix (side², grid²)."""
    edges = torch.arange(side)
    first, last = edges * grid // side, -(-(edges + 1) * grid // side)
    place = torch.arange(grid)
    rows = ((place >= first[:, None]) & (place < last[:, None])).float()
    rows = rows / rows.sum(dim=1, keepdim=True)
    return torch.kron(rows, rows)
