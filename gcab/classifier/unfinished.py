"""Checkpoints of a lesson or a distillation: after a kill at any moment, the same command resumes it."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gcab.classifier.model_folder import UNITS, Kind, ModelFolder, came_of, kind_of
from gcab.config import RunConfig, leaves
from gcab.errors import GcabError
from gcab.runs.checkpoint import Checkpoint, CheckpointStore
from gcab.runs.model import hidden_sibling, read_description
from gcab.version import VERSION

CHECKPOINT_SECONDS = 10.0
WORDS = {"photos": "other photos", "model": "the model has changed since"}  # of facts that are checksums

Note = Callable[[str], object]  # callback for messages to the user


def identity_of(photos: str, model: str | None, config: RunConfig) -> dict[str, str | None]:
    """What identifies a piece of work: pixels and their classes, settings, the model before it (by its digest)."""
    return {
        "gcab": VERSION,
        "photos": photos,
        "model": model,
        **{key: str(value) for key, _, value in leaves(config)},
    }


class Unfinished:
    """The checkpoints of one piece of work, identified by its facts; its folder must be locked."""

    def __init__(
        self,
        folder: ModelFolder,
        kind: Kind,
        facts: Mapping[str, str | None],
        classes: Sequence[str],
        note: Note,
        give_up: bool = False,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        """`classes` that it has photos of; `give_up`: other work is dropped, where it would have been refused."""
        self.folder, self.kind, self.facts, self.classes = folder, kind, facts, classes
        self.note, self.give_up, self.checkpoint_seconds = note, give_up, checkpoint_seconds
        self.name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        self.checkpoints = CheckpointStore(folder.work)
        self.started = self.saved_at = time.monotonic()
        self.seconds_before = 0.0

    def seconds(self) -> float:
        """Seconds that it has taken so far, in all processes together."""
        return self.seconds_before + time.monotonic() - self.started

    @property
    def is_due(self) -> bool:
        """Whether it is time for another checkpoint."""
        return time.monotonic() - self.saved_at >= self.checkpoint_seconds

    def save(self, position: Mapping[str, Any], state: dict[str, Any]) -> None:
        """Write a checkpoint from which the same work resumes, bit for bit."""
        known = {"facts": self.facts, "classes": list(self.classes), "seconds": self.seconds()}
        self.checkpoints.save({self.kind: self.name, **known, **position}, state)
        self.saved_at = time.monotonic()

    def restore(self) -> Checkpoint | None:
        """The checkpoint of this very work; one of other work is given up only if that is allowed."""
        try:
            checkpoint, _ = self.checkpoints.load_latest()
        except GcabError:
            self.note(f"an interrupted command left a damaged checkpoint: this {self.kind} starts from the beginning")
            self.folder.discard_work()
            return None
        if checkpoint is None:
            return None
        position, kind = checkpoint.position, kind_of(checkpoint.position)
        if position[kind] == self.name:
            self.seconds_before = position["seconds"]
            return checkpoint
        names, done = ", ".join(position["classes"]), position[UNITS[kind]]
        if done and not self.give_up:
            this = f"another ({self.differences(position.get('facts', {}))})" if kind == self.kind else f"a {self.kind}"
            raise GcabError(
                f"{self.folder.path} has an interrupted {kind} ({names}; after {UNITS[kind]} {done}) and this is "
                f"{this}: give the photos and options of that one to continue it, or --give-up to drop it."
            )
        of_others = " of other photos or settings" if kind == self.kind else ""
        self.note(f"an interrupted {kind}{of_others} is given up: {names}")
        self.folder.discard_work()
        return None

    def differences(self, before: Mapping[str, str | None]) -> str:
        """The facts in which other work differs, in words."""
        changed = [key for key, value in self.facts.items() if key in before and before[key] != value]
        said = [WORDS.get(key, f"{key} is {self.facts[key]}, was {before[key]}") for key in changed]
        return "; ".join(said) or "that one is of an earlier version"


def place_beside(folder: Path) -> ModelFolder:
    """The hidden folder for the checkpoint of work whose model goes to a folder that may not exist yet."""
    return ModelFolder(hidden_sibling(folder.resolve(), "work"))


@contextmanager
def workplace(folder: Path) -> Iterator[ModelFolder]:
    """A context manager for this place, locked; it is removed at the end of the work, or if it is empty."""
    place = place_beside(folder)
    with place.locked():
        try:
            yield place
            place.discard_work()
        finally:
            if not place.work.exists():
                shutil.rmtree(place.path, ignore_errors=True)


def tidy(folder: Path) -> None:
    """Remove this place where a kill came between the end of the work and the removal."""
    place = place_beside(folder)
    if not place.path.is_dir():
        return
    with place.locked(), suppress(GcabError):  # a damaged checkpoint is for `Unfinished.restore` to tell
        position = place.waiting()
        if position is not None and (folder / "model.json").exists() and came_of(position, read_description(folder)):
            place.discard_work()
        if not place.work.exists():
            shutil.rmtree(place.path, ignore_errors=True)
