"""Tensors with a row for each class, from which a class is taken out."""

import torch
from torch import Tensor, nn


def without_row(tensor: Tensor, row: int) -> Tensor:
    """All rows but one."""
    return torch.cat([tensor[:row], tensor[row + 1 :]])


def drop_row(module: nn.Module, row: int, *names: str) -> None:
    """Take a row out of buffers of a module."""
    for name in names:
        setattr(module, name, without_row(getattr(module, name), row))
