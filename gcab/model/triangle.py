"""Symmetric matrices stored as their lower triangle, row after row: half the bytes."""

import torch
from torch import Tensor


def packed(square: Tensor) -> Tensor:
    """The lower triangle of a matrix."""
    return torch.cat([row[: index + 1] for index, row in enumerate(square)])


def unpacked(triangle: Tensor) -> Tensor:
    """The lower-triangular matrix of a stored triangle, in double precision."""
    size = round((2 * len(triangle)) ** 0.5 - 0.5)
    square = torch.zeros(size, size, dtype=torch.float64, device=triangle.device)
    for index, row in enumerate(triangle.split([*range(1, size + 1)])):
        square[index, : index + 1] = row
    return square


def symmetric(triangle: Tensor) -> Tensor:
    """The full symmetric matrix, in double precision."""
    square = unpacked(triangle)
    return square + square.tril(-1).T
