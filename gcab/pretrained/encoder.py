"""What every pretrained encoder has in common: it never learns, and brings images to the size that it knows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.model.encoder import EncoderConfig
from gcab.model.remembered import Remembering
from gcab.pretrained.description import Description


class PretrainedEncoder(Remembering, ABC):
    """An encoder that was trained elsewhere: `summary` for one vector an image, `forward` for tokens."""

    purposes: ClassVar[dict[str, str]] = {"": "pretrained encoder: turns an image into features; never learns"}
    on_host: ClassVar[bool] = False  # whether it can only be computed on the host

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
        """The same to tokens (B, tokens, D)."""

    def forward(self, images: Tensor) -> Tensor:
        """`look`, at each image once in a lesson."""
        return self.once(self.look, images)

    def summarised(self, images: Tensor) -> Tensor:
        """`summary`, of each image once in a lesson."""
        return self.once(self.summary, images)

    def prepared(self, images: Tensor) -> Tensor:
        """The centre of an image at the encoder's own scale, (B, 3, crop, crop)."""
        resize, crop = self.description.resize, self.description.crop
        if images.shape[2:] != (resize, resize):
            images = functional.interpolate(
                images, (resize, resize), mode="bicubic", align_corners=False, antialias=images.shape[-1] > resize
            )
        first = (resize - crop) // 2
        return images[:, :, first : first + crop, first : first + crop]

    def norms(self) -> Iterator[nn.Module]:
        """None that could be frozen: all are."""
        return iter(())

    def train(self, mode: bool = True) -> "PretrainedEncoder":  # noqa: ARG002
        """It stays as it is, whatever mode its owner is in."""
        return super().train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:  # noqa: ARG002
        return super().requires_grad_(False)


def pooling(grid: int, side: int) -> Tensor:
    """Weights (side², grid²) that average tokens of a square grid over `side` x `side` areas, which may overlap."""
    edges = torch.arange(side)
    first, last = edges * grid // side, -(-(edges + 1) * grid // side)
    place = torch.arange(grid)
    rows = ((place >= first[:, None]) & (place < last[:, None])).float()
    rows = rows / rows.sum(dim=1, keepdim=True)
    return torch.kron(rows, rows)
