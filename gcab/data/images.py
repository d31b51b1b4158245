"""The output of every data set: labelled uint8 images, nothing else."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Split = Literal["train", "test"]
SAMPLE = 16  # images whose brightness is recorded


@dataclass(frozen=True)
class ImageSet:
    """Labelled images of one size, on the CPU; labels index into `classes`."""

    images: Tensor  # (n, 3, H, W) uint8
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[1] != 3:
            raise ValueError(f"images must be (n, 3, H, W), got {tuple(self.images.shape)}")
        if len(self.images) != len(self.labels):
            raise ValueError(f"{len(self.images)} images but {len(self.labels)} labels")

    def looks(self) -> dict[str, list[float]]:
        """A coarse fingerprint of these images: how many each class has, and how bright some are."""
        some = torch.linspace(0, len(self.labels) - 1, SAMPLE).long()
        bright = self.images[some].float().mean(dim=(1, 2, 3))
        return {
            "of_each": torch.bincount(self.labels, minlength=len(self.classes)).tolist(),
            "brightness": [round(level, 1) for level in bright.tolist()],
        }
