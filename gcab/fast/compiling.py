"""Selective `torch.compile`: a module lists the functions worth compiling in its attribute `compiled`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def compiled(owners: Iterable[object]) -> Iterator[None]:
    """A context manager that compiles the listed functions, once per class, and restores them afterwards.

    So batches of any size, as evaluation has them, never wait for a compiler.
    """
    hot = [(owner, name) for owner in owners for name in getattr(owner, "compiled", ())]
    for owner, name in hot:
        setattr(owner, name, torch.compile(getattr(owner, name), dynamic=False))
    try:
        yield
    finally:
        for owner, name in hot:
            delattr(owner, name)
