"""Modules that compute in double precision, and stay on the CPU where the device has none."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

SINGLE = ("mps",)  # device types without float64


def in_double(device: torch.device) -> torch.device:
    """The device itself, or the CPU where the device has no float64."""
    return torch.device("cpu") if device.type in SINGLE else device


def at(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor.to(device)`, without an operation to trace or record where the tensor is there already."""
    return tensor if tensor.device == device else tensor.to(device)


class Exact(nn.Module):
    """A module that stays on the CPU when the model moves to a device without float64."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if any(buffer.device.type in SINGLE for buffer in self.buffers()):
            super()._apply(Tensor.cpu, recurse)  # type: ignore[no-untyped-call]
        return self

    @property
    def device(self) -> torch.device:
        return next(self.buffers()).device
