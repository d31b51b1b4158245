"""Deleting a class from tensors with one row per class."""

import torch
from torch import Tensor, nn


def without_row(tensor: Tensor, row: int) -> Tensor:
    """All rows but one."""
    return torch.cat([tensor[:row], tensor[row + 1 :]])


def drop_row(module: nn.Module, row: int, *names: str) -> None:
    """Delete a row from the named buffers of a module."""
    for name in names:
        setattr(module, name, without_row(getattr(module, name), row))
