"""Scikit-learn's handwritten digits: 1,797 grey images of 8x8 pixels that need no download."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gcab.data.dataset import Dataset
from gcab.data.decode import resized
from gcab.data.images import ImageSet, Split
from gcab.sizes import Size

BRIGHTEST = 16


def load(root: Path | None, split: Split, size: Size) -> ImageSet:  # noqa: ARG001
    """Read one split: of each digit, every fifth image is for testing."""
    grey, labels, turn = everything()
    chosen = (turn % 5 == 4) == (split == "test")
    images = grey[chosen].unsqueeze(1).repeat(1, 3, 1, 1)  # (n, 3, 8, 8)
    return ImageSet(resized(images, size), labels[chosen], tuple(str(digit) for digit in range(10)))


@cache  # scikit-learn reads a text of 1,797 lines, which takes longer than some whole runs
def everything() -> tuple[Tensor, Tensor, Tensor]:
    """All images (n, 8, 8), their labels, and how many images of the same digit came before each; not to be changed."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    labels = torch.from_numpy(digits.target.astype(np.int64))
    grey = torch.from_numpy(np.rint(digits.images * (255 / BRIGHTEST)).astype(np.uint8))
    turn = torch.zeros_like(labels)
    for digit in range(10):
        same = labels == digit
        turn[same] = torch.arange(int(same.sum()))
    return grey, labels, turn


DATASET = Dataset(
    name="digits",
    summary="scikit-learn's 1,797 handwritten digits of 8x8 pixels; nothing to fetch",
    needs="nothing: it comes with scikit-learn",
    classes=10,
    size=8,
    mean=(0.3053, 0.3053, 0.3053),
    std=(0.3760, 0.3760, 0.3760),
    crop="none",
    flip=False,
    needs_root=False,
    load=load,
    tasks=(5,),
    preset={
        "scenario.order": "sorted",
        "encoder.patch": 2,
        "encoder.width": 64,
        "encoder.heads": 4,
        "encoder.blocks": 2,
        "augment.randaugment": False,
        "augment.cutmix": 0.0,
        "training.batch_size": 16,
        "training.epochs": 40,
        "training.first_task": 1.0,
        "training.held_out": 0.1,
        "training.lr": 1e-3,
    },
)
