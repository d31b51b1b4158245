"""A linear layer and the activation after it as one kernel, for inference in bfloat16.

The GPU's matrix library applies the activation before it writes the result; a kernel of its own would read and write
the widest tensor of a block once more. GELU is the library's own, which differs by less than bfloat16 resolves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn


class Activated(nn.Module):
    """gelu(W x + b), or relu(W x + b); all of a kind are compiled as one."""

    def __init__(self, layer: nn.Linear, activation: nn.GELU | nn.ReLU) -> None:
        super().__init__()
        self.layer, self.gelu = layer, isinstance(activation, nn.GELU)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.to(self.layer.weight.dtype).flatten(0, -2)
        result = torch._addmm_activation(self.layer.bias, rows, self.layer.weight.t(), use_gelu=self.gelu)
        return result.unflatten(0, x.shape[:-1])


@contextmanager
def fused_activations(module: nn.Module) -> Iterator[None]:
    """A context manager in which every linear layer of a sequence applies the activation that follows it."""
    held: list[tuple[nn.Sequential, str, nn.Module]] = []
    for sequence in [part for part in module.modules() if isinstance(part, nn.Sequential)]:
        for (first, layer), (second, activation) in pairwise(sequence.named_children()):
            if isinstance(layer, nn.Linear) and isinstance(activation, nn.GELU | nn.ReLU):
                held += [(sequence, first, layer), (sequence, second, activation)]
                sequence.add_module(first, Activated(layer, activation))
                sequence.add_module(second, nn.Identity())
    try:
        yield
    finally:
        for sequence, name, part in held:
            sequence.add_module(name, part)
