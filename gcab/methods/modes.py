"""Context managers that change what a network does for a while."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Context manager that puts a network into eval mode."""
    mode = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(mode)


@contextmanager
def learning(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Context manager that lets parameters learn, frozen ones included, and drops their gradients on exit."""
    learned_before = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, learns in zip(parameters, learned_before, strict=True):
            parameter.grad = None
            parameter.requires_grad_(learns)
