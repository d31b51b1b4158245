"""Classifiers c^t: one per task, logits concatenated."""

import torch
from torch import Tensor, nn

from gcab.model.encoder import initialise


class Head(nn.Module):
    """One task's classifier; the authors put a LayerNorm of its own before the linear layer, the text does not."""

    compiled = ("forward",)

    def __init__(self, width: int, classes: int, normalise: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if normalise else nn.Identity()
        self.linear = nn.Linear(width, classes)

    def forward(self, feature: Tensor) -> Tensor:
        return self.linear(self.norm(feature))


class GrowingHead(nn.Module):
    """Heads over one shared feature, for methods whose decoder knows no tasks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.parts = nn.ModuleList()

    def grow(self, classes: int) -> None:
        part = Head(self.width, classes, normalise=True)
        initialise(part)
        self.parts.append(part)

    def forward(self, feature: Tensor) -> Tensor:
        return torch.cat([part(feature) for part in self.parts], dim=1)  # (B, classes seen)
