"""A network as it was at one moment, for the new one to be compared with."""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class Frozen(nn.Module):
    """A copy that neither learns nor drops paths, whatever mode its owner is in."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module: Any = copy.deepcopy(module).requires_grad_(False).eval()  # of the same kind as what it copies

    def train(self, mode: bool = True) -> "Frozen":  # noqa: ARG002
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)
