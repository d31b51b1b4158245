"""The Python interface: learn some classes, later some more, predict at any time.

model = ContinualClassifier()
model.learn(images, labels)            # the first classes
model.learn(new_images, new_labels)    # more classes; the first images are no longer needed
model.predict(images)

With `learn(..., held_out=0.2)` a fifth of the images decides when to stop and how far probabilities are to be trusted.
"""

import copy
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcab.classifier.calibration import Calibration
from gcab.classifier.distillation import distilled
from gcab.classifier.lesson import Lesson, Observer, Photos, Study, logits_of, share_right
from gcab.classifier.model_folder import ModelFolder, number_of
from gcab.classifier.presets import ENCODERS, RECIPES, first_config, next_config
from gcab.config import RunConfig
from gcab.data.arrays import Images, as_batch, as_images, natural_size
from gcab.data.folder import as_read, class_files, labelled_files
from gcab.data.tasks import Task, TaskImages
from gcab.errors import GcabError, unknown
from gcab.fast.inference import with_views
from gcab.methods.method import Method
from gcab.methods.registry import method_named
from gcab.parallel.devices import choose_device
from gcab.runs.assemble import build_method, load_method, save_method
from gcab.training.trainer import DivergedError, Epoch, grow

Label = str | int
Labels = Sequence[Label] | np.ndarray[Any, Any] | Tensor
USUAL_SIZE = 64  # to check the settings with before the first images have been seen

__all__ = ["ENCODERS", "RECIPES", "ContinualClassifier", "Label", "Labels", "Taught"]


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
    lesson: str | None = (
        None  # names its photos, its settings and the model before it, as `gcab.classifier.teaching` does
    )
    again: tuple[str, ...] = ()  # classes known before of which there were more images


class ContinualClassifier:
    """An image classifier that learns new classes without the images of the old ones."""

    def __init__(
        self,
        method: str = "gcab",
        *,
        encoder: str = "tiny",
        image_size: int | None = None,
        recipe: str = "plain",
        epochs: int | None = None,
        seed: int = 1,
        device: str = "auto",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`image_size` None: chosen from the first images; `settings`: any setting of `gcab train`, by dotted key.

        The recipe `plain` shows every image as it is, for 40 epochs; `photos` cuts, mirrors and recolours, for 500.
        """
        self.device = choose_device(device)
        self._first = functools.partial(first_config, method, encoder, recipe, epochs, seed, settings or {})
        self._config: RunConfig = self._first(USUAL_SIZE if image_size is None else image_size)
        self._sized = image_size is not None
        self._method: Method | None = None
        self._tasks: list[Task] = []
        self._labels: list[Label] = []
        self._taught: list[Taught] = []
        self._calibration = Calibration()
        self._generation: int | None = None
        self._digest: str | None = None
        self._predict: Callable[[Tensor], Tensor] | None = None  # made when it is first needed

    @property
    def classes(self) -> list[Label]:
        """Every class learned, in the order of `predict_proba`'s columns."""
        return list(self._labels)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The groups of classes in the order they were learned."""
        return tuple(self._tasks)

    @property
    def taught(self) -> tuple[Taught, ...]:
        """How each task was learned."""
        return tuple(self._taught)

    @property
    def method(self) -> Method:
        """The method with all it remembers."""
        if self._method is None:
            raise GcabError("this model has learned nothing yet: call learn first.")
        return self._method

    @property
    def config(self) -> RunConfig:
        """Every setting."""
        return self._config

    @property
    def image_size(self) -> int:
        """The side, in pixels, that every image is brought to."""
        if not self._sized:
            raise GcabError("the size of the images is not known yet: it follows from the first that are learned.")
        return self._config.scenario.image_size

    @property
    def calibration(self) -> Calibration:
        """How far the probabilities are to be trusted; plain where no images were ever held out."""
        return self._calibration

    @property
    def generation(self) -> int | None:
        """Which generation of a model folder this is; None for a model in memory."""
        return self._generation

    @property
    def digest(self) -> str | None:
        """The sum of the weights this was loaded from; None for a model in memory."""
        return self._digest

    def configure(
        self,
        *,
        encoder: str | None = None,
        image_size: int | None = None,
        recipe: str | None = None,
        epochs: int | None = None,
        seed: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> "ContinualClassifier":
        """Settings for the tasks to come; the encoder, the method and the size are fixed by the first task."""
        self._config = next_config(self._config, encoder, recipe, epochs, seed, settings, image_size)
        return self

    def learn(
        self,
        images: Images,
        labels: Labels | None = None,
        progress: Callable[[Epoch], object] | None = None,
        *,
        held_out: float = 0.0,
        patience: int | None = None,
    ) -> "ContinualClassifier":
        """Learn new classes from images and their labels, or from a folder with a subfolder per class.

        If anything goes wrong, the model stays as it was. A share `held_out` of each class is not trained on: learning
        stops after `patience` epochs in which those images are not told apart better (None: a quarter of all epochs),
        the best epoch is kept, and the probabilities are calibrated on them.
        """
        if isinstance(images, str | Path) and labels is None:
            images, labels = labelled_files(Path(images))
        if labels is None:
            raise GcabError("labels are missing: give one per image, or a folder with a subfolder per class.")
        started = time.monotonic()
        lesson, new, config = self.prepare(images, labels, held_out)
        tell = None if progress is None else lambda epoch, _: progress(epoch)
        study = self.study(lesson, config, patience, tell)
        try:
            method = study.run()
        except DivergedError as problem:
            raise GcabError(f"{problem.where}: the model is as it was before; {problem.advice}") from problem
        self.adopt(method, study, new, time.monotonic() - started)
        return self

    def prepare(self, images: Images, labels: Labels, held_out: float) -> tuple[Lesson, list[Label], RunConfig]:
        """The first step of `learn`: the lesson, its new classes as they were given, and the settings it needs."""
        images, names = as_batch(images), _plain_labels(labels)
        if len(names) != len(images):
            raise GcabError(f"{len(images)} images but {len(names)} labels: give one label per image.")
        config = self._config if self._sized else self._first(natural_size(images))
        new, again = self._new_classes(names, method_named(config.method).additive)
        first = len(self._labels)
        position = {**again, **{name: first + index for index, name in enumerate(new)}}
        pixels = as_images(images, config.scenario.image_size)
        data = TaskImages(pixels, torch.tensor([position[name] for name in names]))
        task = Task(len(self._tasks), first, tuple(map(str, new)))
        known = {label: str(self._labels[label]) for label in again.values()}
        return Lesson.divide(task, data, held_out, known), new, config

    def study(self, lesson: Lesson, config: RunConfig, patience: int | None, observe: Observer | None) -> Study:
        """The second step of `learn`: a training that has not begun yet; the model is not touched by it."""
        method = self._method if self._method is not None else build_method(config).to(self.device)
        return Study(method, config, lesson, self.device, patience, observe)

    def adopt(
        self, method: Method, study: Study, new: Sequence[Label], seconds: float, name: str | None = None
    ) -> None:
        """The last step of `learn`: take what was learned, and measure it on the images held out."""
        lesson, held_out, accuracy = study.lesson, study.lesson.held_out, None
        calibration = self._calibration.outdated()
        if held_out is not None:
            logits = logits_of(method, held_out.images, self.device)
            accuracy = share_right(logits, held_out.labels)
            newest = min(lesson.task.first, int(held_out.labels.min()))
            calibration = Calibration.fit(logits, held_out.labels, self._calibration, newest)
        self._become(method, study.config, calibration)
        self._tasks.append(lesson.task)
        self._labels += new
        self._taught.append(
            Taught(
                classes=lesson.task.classes,
                images=len(lesson.train.labels),
                held_out=0 if held_out is None else len(held_out.labels),
                accuracy=accuracy,
                epochs=study.epochs if method.trains else None,
                seconds=round(seconds, 3),
                when=datetime.now(UTC).isoformat(timespec="seconds"),
                lesson=name,
                again=tuple(lesson.again.values()),
            )
        )

    def _become(self, method: Method, config: RunConfig, calibration: Calibration) -> None:
        """Another network from now on, which no folder holds yet."""
        self._method, self._config, self._calibration, self._sized = method, config, calibration, True
        self._generation = self._digest = self._predict = None

    def distill(
        self,
        images: Images,
        labels: Labels | None = None,
        capacity: float = 0.8,
        settings: Mapping[str, Any] | None = None,
        watch: Callable[[float], None] = lambda _: None,
    ) -> "ContinualClassifier":
        """Make one pass of the passes of all tasks (GCAB-Fast), with images of the task learned last: faster, smaller.

        If anything goes wrong, the model stays as it was. `watch` is told the share that is done.
        """
        if isinstance(images, str | Path) and labels is None:
            images, labels = labelled_files(Path(images))
        method, names = self.method, None if labels is None else _plain_labels(labels)
        pixels = as_images(as_batch(images), method.setting.image_size)
        self._become(*distilled(self, pixels, names, capacity, settings, watch))
        return self

    def forget(self, label: Label, images: Images | None = None) -> tuple[str, ...]:
        """Take a class out and say what is left of it; images: all it was learned from, or their folder.

        A model of the method `eye` is then the one that never saw the class; without sums by class
        (`options.forgettable`) it needs the images for that. If anything goes wrong, the model stays as it was.
        """
        method, place = copy.deepcopy(self.method), self._place(label)
        if place is None:
            raise unknown("class", str(label), map(str, self._labels))
        if len(self._labels) == 1:
            raise GcabError(f"'{label}' is the only class of this model: delete the model to forget it.")
        if isinstance(images, str | Path):
            files = class_files(Path(images), str(self._labels[place]))
            images = Photos.read(files, [str(label)] * len(files), self.image_size, skip_unreadable=True).pixels
        left = method.forget(place, None if images is None else as_images(images, self.image_size))
        if self._calibration != Calibration():
            left = (*left, "one temperature for the probabilities of all classes")
        self._become(method.eval(), self._config, self._calibration.outdated())
        name = str(self._labels.pop(place))
        kept = [[other for other in task.names if other != name] for task in self._tasks]
        self._tasks = tasks_of(kept)
        self._taught = [
            replace(entry, classes=task.classes, again=tuple(other for other in entry.again if other != name))
            for entry, task in zip(self._taught, self._tasks, strict=True)
        ]
        return left

    def merge(self, other: "ContinualClassifier") -> "ContinualClassifier":
        """Know what another model has learned elsewhere, too: exactly as if this one had learned it (method `eye`).

        Its tasks follow, without the classes that both know. If anything goes wrong, the model stays as it was.
        """
        method = copy.deepcopy(self.method)
        lessons = {entry.lesson for entry in self._taught if entry.lesson}
        if other is self or any(entry.lesson in lessons for entry in other.taught):
            raise GcabError(
                "both models have learned the same photos, which would count twice: merge models that have not."
            )
        self._require_one_kind(other.classes)
        labels, tasks, taught = list(self._labels), list(self._tasks), list(self._taught)
        for task, entry in zip(other.tasks, other.taught, strict=True):
            its = other.classes[task.first : task.first + task.classes]
            new = [label for label in its if self._place(label) is None]
            again = (*entry.again, *(str(label) for label in its if label not in new))
            tasks.append(Task(len(tasks), len(labels), tuple(map(str, new))))
            taught.append(replace(entry, classes=len(new), accuracy=None, again=again))
            grow(method, tasks[-1], self._config.seed)
            labels += new
        own = {as_read(str(label)): place for place, label in enumerate(labels)}
        method.merge(other.method, [own[as_read(str(label))] for label in other.classes])
        self._become(method.eval(), self._config, self._calibration.outdated())
        self._labels, self._tasks, self._taught = labels, tasks, taught
        return self

    def predict(self, images: Images, views: int = 1) -> np.ndarray[Any, Any]:
        """The most probable class of each image; with two `views` its mirror image is looked at, too."""
        best = self.logits(images, views).argmax(dim=1).tolist()
        return np.array([self._labels[index] for index in best])

    def predict_proba(self, images: Images, views: int = 1) -> np.ndarray[Any, Any]:
        """Calibrated probabilities (n, classes), columns in the order of `classes`."""
        return self._calibration.probabilities(self.logits(images, views)).numpy()

    def unknown(self, images: Images) -> np.ndarray[Any, Any]:
        """(n,) from 0 to 1: the share of known images that look more familiar; zeros where too few were held out."""
        return self._calibration.unknown(self.logits(images)).numpy()

    def logits(self, images: Images, views: int = 1) -> Tensor:
        """(n, classes) on the host, before calibration."""
        method, pixels = self.method, as_images(images, self.image_size)
        if self._predict is None:
            with torch.autocast(self.device.type, enabled=False):  # it outlives the caller's precision
                self._predict = method.predictor()
        return logits_of(method, pixels, self.device, with_views(self._predict, method.setting, views))

    def save(self, folder: str | Path) -> None:
        """Write `model.json` and `weights.safetensors`; no image is among them, but for methods made to store some."""
        if self._method is None:
            raise GcabError("this model has learned nothing yet: there is nothing to save.")
        extra = {
            "labels": self._labels,
            "taught": [asdict(taught) for taught in self._taught],
            "calibration": self._calibration.to_dict(),
        }
        save_method(Path(folder), self._method, self._config, self._tasks, extra)

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "ContinualClassifier":
        """A saved model, the current one of a model folder or that of a run, ready to predict and to learn more."""
        chosen = choose_device(device)
        return ModelFolder(folder).read(lambda place: cls._read(place, chosen))

    @classmethod
    def _read(cls, folder: Path, device: torch.device) -> "ContinualClassifier":
        """The model of a folder with `model.json` and `weights.safetensors` inside."""
        method, config, description = load_method(folder)
        model = cls(method=config.method, device=str(device))
        calibration = Calibration.from_dict(description.get("calibration", Calibration().to_dict()))
        model._become(method.to(device), config, calibration)
        model._generation, model._digest = number_of(folder), description["weights"]
        model._tasks = tasks_of(description["tasks"])
        names = [name for task in model._tasks for name in task.names]
        model._labels = list(description.get("labels", names))
        model._taught = _taught(description.get("taught", [{"classes": task.classes} for task in model._tasks]))
        if not len(model._labels) == len(names) or not len(model._taught) == len(model._tasks):
            raise GcabError(f"{folder}/model.json contradicts itself: it is damaged, restore it from a copy.")
        return model

    def _new_classes(self, names: Sequence[Label], any_will_do: bool) -> tuple[list[Label], dict[Label, int]]:
        """Classes to be learned for the first time, and the labels of those known before, if any classes will do."""
        self._require_one_kind(names)
        given: list[Label] = sorted(set(names))
        again = {name: place for name in given if (place := self._place(name)) is not None}
        new = [name for name in given if name not in again]
        if again and not any_will_do:
            raise GcabError(f"class '{next(iter(again))}' was learned before: teach only new classes.")
        if len(new) < 2 and not any_will_do:
            raise GcabError(f"only one class was given ('{new[0]}'): a task needs at least two.")
        return new, again

    def _require_one_kind(self, names: Sequence[Label]) -> None:
        if len({type(name) for name in (*self._labels, *names)}) > 1:
            raise GcabError("some labels are text and some are whole numbers: use one kind for all classes.")

    def _place(self, label: Label) -> int | None:
        """Where a class stands among all; None for one that is not known."""
        known = {as_read(str(name)): place for place, name in enumerate(self._labels)}
        return known.get(as_read(str(label)))


def tasks_of(names: Sequence[Sequence[str]]) -> list[Task]:
    """The tasks with these classes, one after another; one may have none left."""
    firsts = [0, *accumulate(map(len, names))]
    return [Task(index, firsts[index], tuple(its)) for index, its in enumerate(names)]


def _plain_labels(labels: Labels) -> list[Label]:
    """Labels as JSON keeps them: text or whole numbers."""
    plain = labels.tolist() if isinstance(labels, np.ndarray | Tensor) else labels
    if isinstance(plain, str) or not isinstance(plain, Iterable):
        raise GcabError(f"labels must be a list or an array, not {type(labels).__name__}: give one per image.")
    names = [label.item() if isinstance(label, np.generic) else label for label in plain]
    for name in names:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise GcabError(f"label {name!r} is a {type(name).__name__}: give text or whole numbers.")
    return names


def _taught(entries: Sequence[Mapping[str, Any]]) -> list[Taught]:
    """Read with what this version knows, so that a later one may add to it."""
    known = [item.name for item in fields(Taught)]
    try:
        found = [Taught(**{name: entry[name] for name in known if name in entry}) for entry in entries]
        return [replace(entry, again=tuple(entry.again)) for entry in found]
    except TypeError:
        raise GcabError("the record of what was taught in model.json is damaged: restore it from a copy.") from None
