"""Model folders: every lesson writes a new generation atomically, and the one before it is kept.

birds.gcab/
  generation-0003/model.json + weights.safetensors   the one before, for `undo`
  generation-0004/model.json + weights.safetensors   the current one: the highest
  work/                                              the checkpoint of a lesson or distillation under way
  lock                                               one writer at a time; reading needs no lock
  keep                                               how many steps `undo` can go back, where it is not one

A folder with `model.json` directly inside is generation 0, and a run folder means the model inside it.
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from gcab.errors import GcabError
from gcab.runs.files import saving, sync_folder, write_bytes
from gcab.runs.finding import is_run
from gcab.runs.folder import RunFolder
from gcab.runs.lock import RunLock
from gcab.runs.model import GENERATION, DamagedError, digest_of, hidden_sibling, load_model, read_description, reading

T = TypeVar("T")
Undone = Literal["task", "distillation", "forgetting", "renaming", "joining"]
Kind = Literal["lesson", "distillation"]  # of work that may stop and go on later
UNITS: dict[Kind, str] = {"lesson": "epoch", "distillation": "step"}  # that its checkpoints count
UNDONE: dict[str, Undone] = {"renamed": "renaming", "joined": "joining", "forgot": "forgetting"}
KEEP, MOST = "keep", 1000  # the file that says how many steps are kept, and the most there can be


class ModelFolder:
    """All reading and writing of the generations of one model."""

    def __init__(self, path: str | Path) -> None:
        given = Path(path)
        model = given / "model"
        with reading(given):
            self.is_run = (given / "config.json").is_file() and (
                model.is_dir() or hidden_sibling(model, "old").is_dir()
            )
        self.path = model if self.is_run else given
        self._locked = False

    def generations(self) -> dict[int, Path]:
        """Every generation that is there, oldest first; each was created by one rename, so it is complete."""
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
        """A hash of the current model, which identifies it: generation numbers come again after `undo`."""
        return None if self.generation is None else digest_of(self.description())

    @property
    def can_undo(self) -> bool:
        return len(self.generations()) > 1

    @property
    def undoes(self) -> Undone | None:
        """What `undo` would take back."""
        kept = list(self.generations().values())
        if len(kept) < 2:
            return None
        try:
            descriptions = [read_description(folder) for folder in kept[-2:]]
            made, last = (description.get("changes", []) for description in descriptions)
            if len(last) > len(made) and last[-1]["kind"] in UNDONE:
                return UNDONE[last[-1]["kind"]]
            before, now = (description["tasks"] for description in descriptions)
        except (GcabError, KeyError, TypeError):
            return "task"  # `undo` itself will say that it cannot be read
        if sum(map(len, before)) > sum(map(len, now)):
            return "forgetting"
        return "task" if len(before) < len(now) else "distillation"

    @property
    def work(self) -> Path:
        """Where a lesson or a distillation under way keeps its checkpoint."""
        return self.path / "work"

    def waiting(self) -> dict[str, Any] | None:
        """The position of a lesson or distillation under way or interrupted; None once the model contains it."""
        if not self.work.exists():
            return None
        from gcab.runs.checkpoint import CheckpointStore  # with torch, which most readers need not wait for

        checkpoint, _ = CheckpointStore(self.work).load_latest()
        if checkpoint is None:
            return None
        done = self.generation is not None and came_of(checkpoint.position, self.description())
        return None if done else checkpoint.position

    def discard_work(self) -> None:
        """Delete the checkpoint of a lesson or a distillation; the caller holds the folder's lock."""
        if self.work.exists():
            with saving(self.work):
                self._take_away(self.work)

    def current(self) -> Path:
        """The folder of the current generation, with its `model.json` and `weights.safetensors`."""
        kept = self.generations()
        if kept:
            return kept[max(kept)]
        if (hidden_sibling(self.path, "old") / "model.json").exists():
            return self.path  # a save of a flat model was interrupted: loading restores it
        if not self.path.exists():
            raise GcabError(f"there is no model in {self.path}: check the path, or create one with 'gcab learn'.")
        if is_run(self.path):
            RunFolder.open(self.path).require_model()
        if self.work.exists():
            raise GcabError(
                f"there is no model in {self.path} yet: its first lesson has not ended, 'gcab learn' goes on."
            )
        raise GcabError(
            f"there is no model in {self.path}: it has neither a model.json nor a generation; check the path."
        )

    def read(self, reader: Callable[[Path], T]) -> T:
        """Apply `reader` to the current generation without a lock; again if a writer has replaced it meanwhile."""
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
            strange = [entry.name for entry in self.path.iterdir() if entry.name not in ("lock", "work", KEEP)]
            if any(not name.startswith(f".{GENERATION}") for name in strange):
                raise GcabError(f"{self.path} is not empty and holds no model: choose another folder.")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Context manager that holds the folder's lock for a writer; may be nested."""
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

    @property
    def keep(self) -> int:
        """How many steps `undo` can go back, once as many changes were made."""
        try:
            text = (self.path / KEEP).read_bytes().strip()
        except OSError:
            return 1
        return int(text) if text.isdigit() and int(text) <= MOST else 1

    def set_keep(self, steps: int) -> None:
        """Keep so many generations before the current one from now on, of those that are there the newest."""
        require_steps(steps)
        with self.locked():
            write_bytes(self.path / KEEP, f"{steps}\n".encode())
            self._remove_leftovers()

    def undo(self, steps: int = 1) -> int:
        """Back to a generation before, whose number is returned; those after it are gone for good.

        The newest goes first, each by one rename: after a kill, the model is one of the generations in between.
        """
        self.current()
        with self.locked():
            kept = self.generations()
            if len(kept) < 2:
                raise GcabError(f"there is nothing to undo in {self.path}: no generation before this one is kept.")
            if not 1 <= steps < len(kept):
                there = f"{len(kept) - 1} step{'s' * (len(kept) > 2)} back"
                raise GcabError(f"{steps} steps cannot be undone in {self.path}: what is kept goes {there}.")
            before, *after = list(kept)[-steps - 1 :]
            load_model(kept[before])  # never give up a model for one that cannot be read
            for number in after:
                try:
                    load_model(kept[number])
                except DamagedError:
                    pass  # nothing is lost with it
                except GcabError as problem:
                    which = "the newest generation" if number == max(kept) else f"generation {number}"
                    raise GcabError(f"nothing was undone, as {which} may be intact: {problem}") from problem
            for number in reversed(after):
                self._remove(number)
            return before

    def _remove(self, generation: int) -> None:
        """Delete a generation."""
        with saving(self.path):
            if generation == 0:
                for name in ("model.json", "weights.safetensors"):
                    (self.path / name).unlink(missing_ok=True)
                return
            self._take_away(self.path / f"{GENERATION}{generation:04d}")

    def _take_away(self, folder: Path) -> None:
        """Rename a folder to a hidden name, then delete it; after a kill the next writer deletes it."""
        aside = self.path / f".{GENERATION}{folder.name.removeprefix(GENERATION)}.gone"
        folder.rename(aside)
        sync_folder(self.path)
        shutil.rmtree(aside, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        """Delete generations beyond those to keep, and what killed writers left behind."""
        for leftover in self.path.glob(f".{GENERATION}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for old in list(self.generations())[: -1 - self.keep]:
            self._remove(old)
        with contextlib.suppress(GcabError):  # whoever resumes it gets the error again
            if self.work.exists() and self.waiting() is None:
                self.discard_work()


def kind_of(position: Mapping[str, Any]) -> Kind:
    """The kind of work that a checkpoint is of, which is a key of its position."""
    return next(kind for kind in UNITS if kind in position)


def came_of(position: Mapping[str, Any], description: Mapping[str, Any]) -> bool:
    """Whether a model contains the result of the work that a checkpoint is of."""
    kind = kind_of(position)
    made = (*description.get("taught", ()), *description.get("changes", ()))
    return any(entry.get(kind) == position[kind] for entry in made)


def require_steps(steps: int) -> None:
    """Refuse a number of steps that cannot be kept."""
    if not 0 <= steps <= MOST:
        raise GcabError(f"{steps} steps cannot be kept for undo: give a number from 0 to {MOST}.")


def number_of(folder: Path) -> int:
    """The number in a generation's name; 0 for a model that is no generation of another."""
    match = re.fullmatch(rf"{GENERATION}(\d+)", folder.name)
    return int(match[1]) if match else 0
