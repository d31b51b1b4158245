"""A run folder for several ranks: only the first accesses the disk, and what it reads is broadcast.

Reading is a collective operation; writing is not.
"""

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from gcab.parallel.ranks import from_first, rank
from gcab.runs.checkpoint import Checkpoint, CheckpointStore
from gcab.runs.folder import RunFolder


class SharedRun(RunFolder):
    """A run folder whose reads are collective; with one process just a run folder."""

    @classmethod
    def prepare(cls, path: Path, document: dict[str, Any]) -> "SharedRun":
        return cls(path, from_first(lambda: RunFolder.prepare(path, document).document))

    @cached_property
    def checkpoints(self) -> CheckpointStore:
        return SharedCheckpoints(self.path / "checkpoint")

    def append(self, record: Mapping[str, Any]) -> None:
        if rank() == 0:
            super().append(record)

    def records(self, kind: str | None = None) -> Any:
        return from_first(partial(super().records, kind))

    def metrics_bytes(self) -> int:
        return super().metrics_bytes() if rank() == 0 else 0

    def truncate_metrics(self, size: int) -> None:
        if rank() == 0:
            super().truncate_metrics(size)

    def save_arrays(self, name: str, **arrays: np.ndarray[Any, Any]) -> None:
        if rank() == 0:
            super().save_arrays(name, **arrays)

    def load_arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]] | None:
        return from_first(partial(super().load_arrays, name))


class SharedCheckpoints(CheckpointStore):
    """Saved by the first rank and broadcast to all: nothing in a checkpoint depends on the number of ranks."""

    def save(self, position: dict[str, Any], state: dict[str, Any]) -> Path:
        return super().save(position, state) if rank() == 0 else self.folder

    def save_in_background(self, position: dict[str, Any], state: dict[str, Any]) -> None:
        if rank() == 0:
            super().save_in_background(position, state)

    def load_latest(self) -> tuple[Checkpoint | None, list[str]]:
        return from_first(super().load_latest)
