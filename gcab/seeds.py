"""Stateless randomness: every random stream is seeded by the run's seed and its place in the run.

So a resumed run draws what the uninterrupted one would have drawn, and no random state needs to be saved.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derived_seed(seed: int, *place: object) -> int:
    """A seed for one place of a run, such as (seed, "epoch", task, epoch)."""
    digest = hashlib.sha256(repr((seed, *place)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, *place: object, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(derived_seed(seed, *place))


@contextmanager
def seeded(seed: int, *place: object) -> Iterator[None]:
    """Context manager that seeds torch's global generators (initialisation, drop-path, replay), restored at its end."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derived_seed(seed, *place))
        yield
