"""Frozen copies of networks: teachers and references to compare with."""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class Frozen(nn.Module):
    """A copy without gradients that stays in eval mode when its owner is set to training mode."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module: Any = copy.deepcopy(module).requires_grad_(False).eval()  # with the methods of what it copies

    def train(self, mode: bool = True) -> "Frozen":  # noqa: ARG002
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)
