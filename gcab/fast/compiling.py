"""Which functions are worth a compiler's time: whoever has some names them in `compiled`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def compiled(owners: Iterable[object]) -> Iterator[None]:
    """Compiled for a while, one form for all owners of a kind; afterwards as before.

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
