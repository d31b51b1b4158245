"""Parts that compute in double precision, on devices that may have none."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

SINGLE = ("mps",)  # kinds of devices without double precision


def in_double(device: torch.device) -> torch.device:
    """Where numbers of this device can be doubles: there, or on the host."""
    return torch.device("cpu") if device.type in SINGLE else device


def at(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; nothing is traced or recorded where it is there already."""
    return tensor if tensor.device == device else tensor.to(device)


class Exact(nn.Module):
    """A part that stays on the host where the others go to a device without double precision."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if any(buffer.device.type in SINGLE for buffer in self.buffers()):
            super()._apply(Tensor.cpu, recurse)  # type: ignore[no-untyped-call]
        return self

    @property
    def device(self) -> torch.device:
        return next(self.buffers()).device
