"""Classifiers c^t: one per task, logits concatenated."""

from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

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
        if classes == 0:  # all of its classes were forgotten
            self.drop(0)

    def forward(self, feature: Tensor) -> Tensor:
        return self.linear(self.norm(feature))

    def drop(self, label: int) -> None:
        """Remove a class, even if it is the last one."""
        for name, held in [*self.linear.named_parameters()]:
            setattr(self.linear, name, nn.Parameter(without_row(held.detach(), label), held.requires_grad))
        self.linear.out_features -= 1


class GrowingHead(nn.Module):
    """One head per task on a shared feature, for methods without a pass per task."""

    def __init__(self, width: int, normalise: bool = True) -> None:
        super().__init__()
        self.width, self.normalise = width, normalise
        self.parts = nn.ModuleList()

    def grow(self, classes: int) -> None:
        part = self.part(classes)
        initialise(part)
        self.parts.append(part)

    def part(self, classes: int) -> nn.Module:
        return Head(self.width, classes, self.normalise)

    def forward(self, feature: Tensor) -> Tensor:
        return torch.cat([part(feature) for part in self.parts], dim=1)  # (B, classes seen)


class CosineHead(GrowingHead):
    """z_c = s cos(f, w_c): cosine classifiers, so that no class wins by the norm of its weights."""

    purposes: ClassVar[dict[str, str]] = {"": "classifier of the classes of {this}"}

    def __init__(self, width: int, scale: float) -> None:
        super().__init__(width, normalise=False)
        self.scale = scale

    def part(self, classes: int) -> nn.Module:
        return nn.Linear(self.width, classes, bias=False)

    def forward(self, feature: Tensor) -> Tensor:
        weights = torch.cat([cast(nn.Linear, part).weight for part in self.parts])
        directions = functional.normalize(weights.float(), dim=1)
        return self.scale * functional.linear(functional.normalize(feature.float(), dim=1), directions)
