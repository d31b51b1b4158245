"""A linear layer and the activation after it as one kernel, for inference in bfloat16.

A GPU's library for matrices applies the activation before it writes a result; by itself it costs reading and writing
the widest tensor of a block once more. GELU is the library's own, which differs by less than bfloat16 can tell.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn


@contextmanager
def fused_activations(module: nn.Module) -> Iterator[None]:
    """A context manager in which every linear layer of a sequence applies the activation that follows it."""
    pairs = [pair for part in module.modules() if isinstance(part, nn.Sequential) for pair in pairwise(part)]
    fused: list[nn.Module] = []
    for layer, activation in pairs:
        if isinstance(layer, nn.Linear) and isinstance(activation, nn.GELU | nn.ReLU):
            layer.forward = partial(activated, layer, isinstance(activation, nn.GELU))  # type: ignore[method-assign]
            activation.forward = nn.Identity().forward  # type: ignore[method-assign]
            fused += [layer, activation]
    try:
        yield
    finally:
        for part in fused:
            del part.forward


def activated(layer: nn.Linear, gelu: bool, x: Tensor) -> Tensor:
    """gelu(W x + b), or relu(W x + b)."""
    rows = x.to(layer.weight.dtype).flatten(0, -2)
    return torch._addmm_activation(layer.bias, rows, layer.weight.t(), use_gelu=gelu).unflatten(0, x.shape[:-1])
