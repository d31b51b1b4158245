"""A model that learns for years: every lesson a new generation, the one before it kept, never half of one.

birds.gcab/
  generation-0003/model.json + weights.safetensors   the one before, for `undo`
  generation-0004/model.json + weights.safetensors   the current one: the highest
  work/                                              the checkpoint of a lesson under way
  lock                                               one writer at a time; reading needs no lock

A folder with `model.json` directly inside is generation 0, and a run folder means the model inside it.
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from gcab.errors import GcabError
from gcab.runs.checkpoint import CheckpointStore
from gcab.runs.files import saving, sync_folder
from gcab.runs.folder import RunFolder, is_run
from gcab.runs.lock import RunLock
from gcab.runs.model import GENERATION, DamagedError, beside, load_model, read_description, reading

T = TypeVar("T")


class ModelFolder:
    """All reading and writing of the generations of one model."""

    def __init__(self, path: str | Path) -> None:
        given = Path(path)
        model = given / "model"
        with reading(given):
            self.is_run = (given / "config.json").is_file() and (model.is_dir() or beside(model, "old").is_dir())
        self.path = model if self.is_run else given
        self._locked = False

    def generations(self) -> dict[int, Path]:
        """Every generation that is there, oldest first; each came by one rename and so is whole."""
        with reading(self.path):
            found = {number_of(folder): folder for folder in self.path.glob(f"{GENERATION}*") if number_of(folder)}
            if (self.path / "model.json").exists():
                found[0] = self.path
        return dict(sorted(found.items()))

    @property
    def generation(self) -> int | None:
        """The current one's number; None where nothing has been learned yet."""
        return max(self.generations(), default=None)

    @property
    def digest(self) -> str | None:
        """What tells the current model from every other: numbers come again after `undo`, sums of weights do not."""
        return None if self.generation is None else str(self.description()["weights"])

    @property
    def can_undo(self) -> bool:
        return len(self.generations()) > 1

    @property
    def undoes(self) -> Literal["task", "distillation", "forgetting"] | None:
        """What `undo` would take back."""
        kept = list(self.generations().values())
        if len(kept) < 2:
            return None
        try:
            before, now = (read_description(folder)["tasks"] for folder in kept[-2:])
        except (GcabError, KeyError, TypeError):
            return "task"  # `undo` itself will say that it cannot be read
        if sum(map(len, before)) > sum(map(len, now)):
            return "forgetting"
        return "task" if len(before) < len(now) else "distillation"

    @property
    def work(self) -> Path:
        """Where a lesson under way keeps its checkpoint."""
        return self.path / "work"

    def waiting(self) -> dict[str, Any] | None:
        """Where a lesson stands that is under way or was interrupted; None once the model has learned it."""
        checkpoint, _ = CheckpointStore(self.work).load_latest()
        if checkpoint is None:
            return None
        learned = [] if self.generation is None else self.description().get("taught", [])
        done = any(task.get("lesson") == checkpoint.position["lesson"] for task in learned)
        return None if done else checkpoint.position

    def discard_work(self) -> None:
        """Give up what a lesson has come to; only for whoever has locked the folder."""
        with saving(self.work):
            shutil.rmtree(self.work)

    def current(self) -> Path:
        """The folder of the current generation, with its `model.json` and `weights.safetensors`."""
        kept = self.generations()
        if kept:
            return kept[max(kept)]
        if (beside(self.path, "old") / "model.json").exists():
            return self.path  # a save of a flat model was interrupted: whoever loads it brings it back
        if not self.path.exists():
            raise GcabError(f"there is no model in {self.path}: check the path, or create one with 'gcab learn'.")
        if is_run(self.path):
            RunFolder.open(self.path).require_model()
        if self.work.exists():
            raise GcabError(
                f"there is no model in {self.path} yet: its first lesson has not ended, 'gcab learn' goes on."
            )
        raise GcabError(f"there is no model in {self.path}: it has neither a model.json nor a generation.")

    def read(self, reader: Callable[[Path], T]) -> T:
        """What `reader` makes of the current generation, without a lock: one that moves on meanwhile is read again."""
        while True:
            folder = self.current()
            try:
                return reader(folder)
            except GcabError as problem:
                kept = self.generations()
                if kept and kept[max(kept)] != folder:
                    continue
                if not isinstance(problem, DamagedError) or len(kept) < 2:
                    raise
                way_back = f"'gcab undo {self.path}' goes back to generation {list(kept)[-2]}"
                raise DamagedError(f"{str(problem).rstrip('.')}; {way_back}.") from problem

    def description(self) -> dict[str, Any]:
        """The current `model.json`."""
        return self.read(read_description)

    def check_writable(self) -> None:
        """Refuse folders that are not a model's own."""
        if self.is_run or (self.path.name == "model" and (self.path.parent / "config.json").is_file()):
            raise GcabError(f"{self.path} belongs to a run: copy it to a folder of its own to teach it more.")
        if self.path.exists() and not self.path.is_dir():
            raise GcabError(f"{self.path} is a file: choose a folder for the model.")
        if self.path.is_dir() and not self.generations():
            strange = [entry.name for entry in self.path.iterdir() if entry.name not in ("lock", "work")]
            if any(not name.startswith(f".{GENERATION}") for name in strange):
                raise GcabError(f"{self.path} is not empty and holds no model: choose another folder.")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only writer, for as long as a lesson takes; may be nested."""
        if self._locked:
            yield
            return
        self.check_writable()
        with RunLock(self.path):
            self._locked = True
            try:
                self._remove_leftovers()
                yield
            finally:
                self._locked = False

    def write(self, save: Callable[[Path], None]) -> int:
        """A new generation, written by `save` (such as `ContinualClassifier.save`); returns its number."""
        with self.locked():
            number = (self.generation or 0) + 1
            save(self.path / f"{GENERATION}{number:04d}")
            self._remove_leftovers()
            return number

    def undo(self) -> int:
        """Back to the generation before, whose number is returned; the current one is gone for good."""
        self.current()
        with self.locked():
            kept = self.generations()
            if len(kept) < 2:
                raise GcabError(f"there is nothing to undo in {self.path}: no generation before this one is kept.")
            before, newest = list(kept)[-2:]
            load_model(kept[before])  # never give up a model for one that cannot be read
            try:
                load_model(kept[newest])
            except DamagedError:
                pass  # nothing is lost with it
            except GcabError as problem:
                raise GcabError(f"nothing was undone, as the newest generation may be intact: {problem}") from problem
            self._remove(newest)
            return before

    def _remove(self, generation: int) -> None:
        """One rename takes a generation out of sight; what it held is deleted afterwards."""
        with saving(self.path):
            if generation == 0:
                for name in ("model.json", "weights.safetensors"):
                    (self.path / name).unlink(missing_ok=True)
                return
            folder = self.path / f"{GENERATION}{generation:04d}"
            aside = folder.with_name(f".{folder.name}.gone")
            folder.rename(aside)
            sync_folder(self.path)
            shutil.rmtree(aside, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        """What is not needed any more, and what writers that were killed left behind."""
        for leftover in self.path.glob(f".{GENERATION}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for old in list(self.generations())[:-2]:
            self._remove(old)
        with contextlib.suppress(GcabError):  # whoever wants to go on with the lesson says what is wrong
            if self.work.exists() and self.waiting() is None:
                self.discard_work()


def number_of(folder: Path) -> int:
    """The number in a generation's name; 0 for a model that is no generation of another."""
    match = re.fullmatch(rf"{GENERATION}(\d+)", folder.name)
    return int(match[1]) if match else 0
