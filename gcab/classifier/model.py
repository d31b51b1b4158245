"""A model that has learned some classes: it predicts, and is saved and loaded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from gcab.classifier.calibration import Calibration
from gcab.classifier.history import Change
from gcab.classifier.logits import logits_of
from gcab.classifier.model_folder import ModelFolder, number_of
from gcab.config import RunConfig
from gcab.data.arrays import Images, as_images
from gcab.data.tasks import Task
from gcab.errors import GcabError
from gcab.fast.inference import with_views
from gcab.methods.method import Method
from gcab.parallel.devices import choose_device
from gcab.runs.assemble import load_method, save_method
from gcab.runs.model import digest_of
from gcab.sizes import Size

Label = str | int
T = TypeVar("T", Change, "Taught")


@dataclass(frozen=True)
class Taught:
    """How one task was learned; None where it is not known, as for models of a run."""

    classes: int
    images: int | None = None
    held_out: int | None = None
    accuracy: float | None = None  # per cent of held-out images, told apart among all classes when learned
    epochs: int | None = None
    seconds: float | None = None
    when: str | None = None  # ISO 8601
    lesson: str | None = None  # identifies photos, settings and the model before it, see `gcab.classifier.unfinished`
    again: tuple[str, ...] = ()  # classes known before of which there were more images
    photos: str | None = None  # identifies its photos, which must not be learned twice
    now: float | None = None  # the accuracy to expect since the last change; see `forecast`
    at_first: float | None = None  # the same right after the lesson, with which `now` compares


@dataclass(frozen=True)
class Knowledge:
    """The immutable state of a model; every change makes another one."""

    method: Method
    config: RunConfig
    tasks: tuple[Task, ...] = ()
    labels: tuple[Label, ...] = ()  # of all classes, as they were given
    taught: tuple[Taught, ...] = ()  # one for each task
    calibration: Calibration = field(default_factory=Calibration)
    generation: int | None = None  # of a model folder
    digest: str | None = None  # of what it was loaded from
    changes: tuple[Change, ...] = ()  # that were no lessons

    def become(self, method: Method, config: RunConfig, calibration: Calibration, **changes: Any) -> "Knowledge":
        """The state with another method, which is not saved yet."""
        return replace(
            self,
            method=method.eval(),
            config=config,
            calibration=calibration,
            generation=None,
            digest=None,
            **changes,
        )

    @cached_property
    def predictor(self) -> Callable[[Tensor], Tensor]:
        """Maps normalised images to logits; made when it is first needed."""
        with torch.autocast(self.method.device.type, enabled=False):  # it outlives the caller's autocast
            return self.method.predictor()

    def __getstate__(self) -> dict[str, Any]:
        """Without the predictor: copies and other processes make their own."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def save(self, folder: Path) -> None:
        """Write `model.json` and `weights.safetensors`."""
        extra = {
            "labels": list(self.labels),
            "taught": [asdict(entry) for entry in self.taught],
            "calibration": self.calibration.to_dict(),
            **({"changes": [asdict(entry) for entry in self.changes]} if self.changes else {}),
        }
        save_method(folder, self.method, self.config, self.tasks, extra)

    @classmethod
    def read(cls, folder: Path, device: torch.device) -> "Knowledge":
        """Read a folder with `model.json` and `weights.safetensors`."""
        method, config, description = load_method(folder)
        tasks = tasks_of(description["tasks"])
        names = [name for task in tasks for name in task.names]
        entries = description.get("taught", [{"classes": task.classes} for task in tasks])
        calibration = description.get("calibration", Calibration().to_dict())
        return cls(
            method.to(device),
            config,
            tasks,
            tuple(description.get("labels", names)),
            tuple(_taught(entry) for entry in entries),
            Calibration.from_dict(calibration),
            number_of(folder),
            digest_of(description),
            tuple(_recorded(Change, entry) for entry in description.get("changes", ())),
        )


class Classifier:
    """Predicts the classes of images; `ContinualClassifier` is one that can learn more."""

    def __init__(self, known: Knowledge | None, device: torch.device) -> None:
        self.device = device
        self._known = known  # None: nothing yet

    @property
    def known(self) -> Knowledge:
        """All that it has learned."""
        if self._known is None:
            raise GcabError("this model has learned nothing yet: call learn first.")
        return self._known

    @property
    def classes(self) -> list[Label]:
        """Every class learned, in the order of `predict_proba`'s columns."""
        return [] if self._known is None else list(self._known.labels)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The groups of classes in the order they were learned."""
        return () if self._known is None else self._known.tasks

    @property
    def taught(self) -> tuple[Taught, ...]:
        """How each task was learned."""
        return () if self._known is None else self._known.taught

    @property
    def method(self) -> Method:
        """The method with all it remembers."""
        return self.known.method

    @property
    def config(self) -> RunConfig:
        """Every setting."""
        return self.known.config

    @property
    def image_size(self) -> Size:
        """The side, in pixels, that every image is brought to."""
        return self.config.scenario.image_size

    @property
    def calibration(self) -> Calibration:
        """The calibration of the probabilities; the identity where no images were ever held out."""
        return Calibration() if self._known is None else self._known.calibration

    @property
    def generation(self) -> int | None:
        """Which generation of a model folder this is; None for a model in memory."""
        return None if self._known is None else self._known.generation

    @property
    def digest(self) -> str | None:
        """A hash of the model that this was loaded from; None for a model in memory."""
        return None if self._known is None else self._known.digest

    def predict(self, images: Images, views: int = 1) -> np.ndarray[Any, Any]:
        """The most probable class of each image; with two `views` its mirror image is looked at, too."""
        best = self.logits(images, views).argmax(dim=1).tolist()
        return np.array([self.known.labels[index] for index in best])

    def predict_proba(self, images: Images, views: int = 1) -> np.ndarray[Any, Any]:
        """Calibrated probabilities (n, classes), columns in the order of `classes`."""
        return self.calibration.probabilities(self.logits(images, views)).numpy()

    def unknown(self, images: Images) -> np.ndarray[Any, Any]:
        """(n,) from 0 to 1: the share of known images that look more familiar; zeros where too few were held out."""
        return self.calibration.unknown(self.logits(images)).numpy()

    def logits(self, images: Images, views: int = 1) -> Tensor:
        """(n, classes) on the CPU, before calibration."""
        method, pixels = self.method, as_images(images, self.image_size)
        return logits_of(method, pixels, self.device, with_views(self.known.predictor, method.setting, views))

    def save(self, folder: str | Path) -> None:
        """Write `model.json` and `weights.safetensors`; no image is among them, but for methods made to store some."""
        if self._known is None:
            raise GcabError("this model has learned nothing yet: there is nothing to save.")
        self._known.save(Path(folder))

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Self:
        """A saved model, the current one of a model folder or that of a run, ready to predict."""
        chosen = choose_device(device)
        known = ModelFolder(folder).read(lambda place: Knowledge.read(place, chosen))
        return cls._of(known, chosen)

    @classmethod
    def _of(cls, known: Knowledge, device: torch.device) -> Self:
        return cls(known, device)


def as_of_now(taught: Sequence[Taught], expected: Sequence[float | None]) -> tuple[Taught, ...]:
    """The entries with the accuracy to expect now of each task (see `forecast`)."""
    rounded = (None if value is None else round(value, 2) for value in expected)
    return tuple(replace(entry, now=value) for entry, value in zip(taught, rounded, strict=True))


def tasks_of(names: Sequence[Sequence[str]]) -> tuple[Task, ...]:
    """The tasks with these classes, one after another; one may have none left."""
    firsts = [0, *accumulate(map(len, names))]
    return tuple(Task(index, firsts[index], tuple(its)) for index, its in enumerate(names))


def _taught(entry: Mapping[str, Any]) -> Taught:
    found = _recorded(Taught, entry)
    return replace(found, again=tuple(found.again))


def _recorded(kind: type[T], entry: Mapping[str, Any]) -> T:
    """A record from JSON; fields that this version does not know are ignored, so that a later one may add some."""
    return kind(**{item.name: entry[item.name] for item in fields(kind) if item.name in entry})
