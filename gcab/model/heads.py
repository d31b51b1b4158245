"""Classifiers c^t: one per task, logits concatenated."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from gcab.model.encoder import initialise
from gcab.model.rows import without_row


class Head(nn.Module):
    """One task's classifier; the authors put a LayerNorm of its own before the linear layer, the text does not."""

    purposes: ClassVar[dict[str, str]] = {"": "classifier of the classes of {this}"}

    compiled = ("forward",)

    def __init__(self, width: int, classes: int, normalise: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if normalise else nn.Identity()
        self.linear = nn.Linear(width, max(1, classes))
        if classes == 0:  # all were forgotten
            self.drop(0)

    def forward(self, feature: Tensor) -> Tensor:
        return self.linear(self.norm(feature))

    def drop(self, label: int) -> None:
        """Take a class out; it may have been the last."""
        for name, held in [*self.linear.named_parameters()]:
            setattr(self.linear, name, nn.Parameter(without_row(held.detach(), label), held.requires_grad))
        self.linear.out_features -= 1


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
