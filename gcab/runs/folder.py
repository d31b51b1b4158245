"""All reading and writing of a run folder: what was asked for, what was measured, what was predicted.

`config.json` is written once; `metrics.jsonl` only grows; everything else is replaced atomically.
"""

import gzip
import hashlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from gcab.errors import GcabError
from gcab.records import EpochRecord, ProbeRecord, TaskRecord
from gcab.runs.document import read_document, require_same
from gcab.runs.files import parsed, remove_temporaries, saving, sync_folder, write_json, writing
from gcab.runs.finding import LOG, PACKED_LOG, is_run, runs_below

if TYPE_CHECKING:  # torch takes seconds to import, and a report does not need it
    from gcab.runs.checkpoint import CheckpointStore


class RunFolder:
    """One run on disk; `document` is the content of its config.json."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.path = path
        self.document = document

    @classmethod
    def prepare(cls, path: Path, document: dict[str, Any]) -> "RunFolder":
        """Create the run, or continue it if it was started with the same configuration (call with the lock held)."""
        if path.exists() and not path.is_dir():
            raise GcabError(f"{path} is a file, not a folder: choose another --run folder")
        document = json.loads(json.dumps(document))  # tuples become lists, as they will be when read back
        if (path / "config.json").exists():
            existing = read_document(path)
            if not (path / LOG).exists() and (path / PACKED_LOG).exists():
                raise GcabError(f"{path} is a published run, to which nothing is added: choose another --run folder")
            require_same(path, existing, document)
            document = existing
        else:
            if foreign := [entry.name for entry in _visible(path) if entry.name != "lock"]:
                raise GcabError(
                    f"{path} is not a run folder and not empty (it has {sorted(foreign)[0]}): "
                    "choose another --run folder"
                )
            write_json(path / "config.json", document)
        run = cls(path, document)
        remove_temporaries(path)
        remove_temporaries(run._predictions)
        run._cut_torn_line()
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run for reading."""
        if not path.exists():
            raise GcabError(f"there is no run folder {path}: check the path, or train one with gcab train.")
        if not is_run(path):
            below = [str(run) for run, _ in zip(runs_below(path), range(3), strict=False)]
            hint = f"did you mean {' or '.join(below)}?" if below else "it has no config.json and metrics.jsonl."
            raise GcabError(f"{path} is not a run folder: {hint}")
        return cls(path, read_document(path))

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        config: dict[str, Any] = self.document["config"]
        return config

    @property
    def tasks(self) -> list[list[str]]:
        """The class names of each task, in the order they were learned."""
        tasks: list[list[str]] = self.document["tasks"]
        return tasks

    @property
    def method(self) -> str:
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def scenario(self) -> str:
        return str(self.config["scenario"]["name"])

    @property
    def held_out(self) -> bool:
        """Whether it was tested on images held out of the training images, as for choosing settings."""
        return bool(self.config["scenario"].get("validation"))

    @property
    def name(self) -> str:
        """A short label for tables and legends."""
        return f"{self.method} seed {self.seed}"

    @property
    def group(self) -> str:
        """A key that runs share if they differ in their seed only (and so, perhaps, in their class order)."""
        rest = {key: value for key, value in self.config.items() if key != "seed"}
        digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
        return f"{self.scenario}/{self.method}/{digest[:8]}"

    @cached_property
    def checkpoints(self) -> "CheckpointStore":
        from gcab.runs.checkpoint import CheckpointStore

        return CheckpointStore(self.path / "checkpoint")

    @property
    def commit(self) -> str | None:
        """The commit of the code, shortened; where it was corrected later, with the one that was recorded."""
        recorded, corrected = (str(self.document.get(key) or "")[:7] for key in ("commit", "commit_corrected"))
        return f"{corrected} (recorded: {recorded or 'none'})" if corrected else recorded or None

    @property
    def model(self) -> Path:
        return self.path / "model"

    def require_model(self) -> None:
        """Raise an error, which says how to get a model, if the run has none."""
        from gcab.runs.model import hidden_sibling

        if any((place / "model.json").exists() for place in (self.model, hidden_sibling(self.model, "old"))):
            return
        command = self.document.get("command")
        named = f" ({command})" if command else ""
        if self.records("task"):
            raise GcabError(
                f"only the log of the run {self.path} is here, its model is not: copy the run's folder 'model' here, "
                f"or train it again{named}."
            )
        raise GcabError(
            f"the run {self.path} has no model yet, as its first task has not ended: the command that started it "
            f"continues it{named}."
        )

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def metrics(self) -> Path:
        """The file of its log."""
        packed = self.path / PACKED_LOG
        return packed if packed.exists() and not (self.path / LOG).exists() else self.path / LOG

    @property
    def _predictions(self) -> Path:
        return self.path / "predictions"

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line to the metrics; what a task or a run ended with is on disk when this returns."""
        line = json.dumps(_finite(record)) + "\n"
        with saving(self.metrics), self.metrics.open("ab") as file:
            file.write(line.encode())
            file.flush()
            if record["kind"] in ("task", "final"):
                os.fsync(file.fileno())

    @overload
    def records(self, kind: Literal["task"]) -> list[TaskRecord]: ...
    @overload
    def records(self, kind: Literal["epoch"]) -> list[EpochRecord]: ...
    @overload
    def records(self, kind: Literal["probe"]) -> list[ProbeRecord]: ...
    @overload
    def records(self, kind: Literal["final"] | None = None) -> list[dict[str, Any]]: ...
    def records(self, kind: str | None = None) -> Any:
        """Read the metrics, all or of one kind; a line counts once its newline is written."""
        records = []
        for number, line in enumerate(self.log_bytes().split(b"\n")[:-1], start=1):
            try:
                record = parsed(line)
                found = record["kind"]
            except (ValueError, KeyError, TypeError):
                raise GcabError(
                    f"line {number} of {self.metrics} is damaged: restore the file, or delete {self.path} "
                    "and run the same command again"
                ) from None
            if kind in (None, found):
                records.append(record)
        return records

    def log_bytes(self) -> bytes:
        """The whole log as it was written."""
        data = self.metrics.read_bytes()
        if self.metrics.name != PACKED_LOG:
            return data
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise GcabError(f"{self.metrics} is damaged: restore the file, or publish the run again") from None

    def log(self) -> bytes:
        """A hash of the log, which tells two runs of one configuration apart."""
        return hashlib.sha256(self.log_bytes()).digest()

    def final(self) -> dict[str, Any] | None:
        """Give the record a complete run ends with."""
        found = self.records("final")
        if found and "acc_tag" not in found[-1]:
            raise GcabError(f"the last line of {self.metrics} is damaged: restore the file, or train the run again.")
        return found[-1] if found else None

    def metrics_bytes(self) -> int:
        """fsync the log and return its length, which a checkpoint stores."""
        with saving(self.metrics), self.metrics.open("r+b") as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def truncate_metrics(self, size: int) -> None:
        """Drop the records that were written after the checkpoint a run resumes from."""
        present = self.metrics.stat().st_size
        if present < size:
            raise GcabError(
                f"{self.metrics} has {present} bytes, but the checkpoint was saved when it had {size}: "
                f"restore the file, or delete {self.path} and run the same command again"
            )
        with saving(self.metrics):
            os.truncate(self.metrics, size)

    def save_arrays(self, name: str, **arrays: np.ndarray[Any, Any]) -> None:
        """Replace predictions/<name>.npz."""
        if objects := [key for key, array in arrays.items() if array.dtype.hasobject]:
            raise TypeError(f"array {objects[0]} holds Python objects, which only pickle could store")
        with writing(self._predictions / f"{name}.npz") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    def load_arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]] | None:
        """Read predictions/<name>.npz if it was saved."""
        path = self._predictions / f"{name}.npz"
        if not path.exists():
            return None
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
            raise GcabError(f"{path} is damaged: restore it, or delete it and do without its figures.") from None

    def save_embedding(self, task: int, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
        """Replace what was embedded after a task; what compensation does not change is stored once."""
        same = np.array_equal(arrays["raw"], arrays["compensated"])
        kept = {key: arrays[key] for key in arrays if not (same and key == "compensated")}
        # Column by column: those behind a closed gate are constant, and take no space.
        self.save_arrays(f"embedding-{task:02d}", **{key: np.asfortranarray(array) for key, array in kept.items()})

    def embedding(self, task: int) -> dict[str, np.ndarray[Any, Any]] | None:
        """Read labels, raw and compensated points, if they were saved."""
        arrays = self.load_arrays(f"embedding-{task:02d}")
        rows = {key: np.ascontiguousarray(array) for key, array in (arrays or {}).items()}
        return {"compensated": rows["raw"], **rows} if rows else None

    def arrays_names(self, prefix: str = "") -> list[str]:
        """List the names that `load_arrays` knows."""
        return sorted(path.stem for path in _visible(self._predictions) if path.match(f"{prefix}*.npz"))

    def _cut_torn_line(self) -> None:
        # The next record would otherwise be glued to the half a killed process left.
        with saving(self.metrics):
            self.metrics.touch()
            sync_folder(self.path)
            data = self.metrics.read_bytes()
            if not data.endswith(b"\n"):
                os.truncate(self.metrics, data.rfind(b"\n") + 1)


def final_of(path: Path) -> dict[str, Any]:
    """The final record of a run that has been finished, perhaps on another machine."""
    final = RunFolder.open(path).final() if is_run(path) else None
    if final is None:
        raise GcabError(
            f"a worker has finished it, but {path} is not here: --runs must be a folder that all machines share."
        )
    return final


def find_runs(paths: Sequence[Path]) -> list[RunFolder]:
    """Open every run that is, lies below, or is listed below one of `paths`, in the order of a table.

    It goes by scenario, method, seed, settings. Of copies of a run only the one with the most files counts.
    """
    found: dict[Path, RunFolder] = {}
    for path in paths:
        if not path.exists():
            raise GcabError(f"there is no run folder {path}: check the path, or train one with gcab train")
        below = [path] if is_run(path) else list(runs_below(path))
        if not below:
            raise GcabError(f"there is no run in {path}: give a run folder or one that holds some")
        for run in below:
            found.setdefault(run.resolve(), RunFolder.open(run))
    originals: dict[tuple[str, int, bytes], RunFolder] = {}
    for fullest in sorted(found.values(), key=lambda run: -sum(1 for _ in run.path.rglob("*"))):
        originals.setdefault((fullest.group, fullest.seed, fullest.log()), fullest)
    return sorted(originals.values(), key=lambda run: (run.scenario, run.method, run.seed, run.group, str(run.path)))


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if not path.name.startswith(".")]
