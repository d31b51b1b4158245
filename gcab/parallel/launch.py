"""Ranks and world size, which a launcher such as `torchrun` passes to its processes through the environment."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

PATIENCE = 30.0  # seconds in which the first rank can report an error that all ranks have


@dataclass(frozen=True)
class Launch:
    """The place of this process among those started together; without a launcher it is the only one."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0  # among those on this machine
    local_world: int = 1

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> "Launch":
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if any(name not in environment for name in names):
            return Launch()
        return Launch(*(int(environment[name]) for name in names))

    @property
    def is_first(self) -> bool:
        return self.rank == 0


@contextmanager
def one_voice(launch: Launch, patience: float = PATIENCE) -> Iterator[None]:
    """A context manager that reports an error on the first rank only, which has it too or has caused it.

    When a process exits with an error its launcher stops the others, so a process that is still there after a while
    is the only one that knows of its error and must tell.
    """
    try:
        yield
    except KeyboardInterrupt:
        if launch.is_first:
            raise
        raise SystemExit(130) from None
    except Exception:
        if not launch.is_first:
            time.sleep(patience)
        raise
