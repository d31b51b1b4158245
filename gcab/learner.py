"""The Python interface: learn some classes, later some more, predict at any time.

model = ContinualClassifier()
model.learn(images, labels)            # the first classes
model.learn(new_images, new_labels)    # more classes; the first images are no longer needed
model.predict(images)

With `learn(..., held_out=0.2)` a fifth of the images decides when to stop and how far probabilities are to be trusted.
"""

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcab.assemble import build_method, load_method, save_method
from gcab.calibration import Calibration
from gcab.config import RunConfig
from gcab.data.arrays import Images, as_batch, as_images, natural_size
from gcab.data.folder import as_read, labelled_files
from gcab.devices import choose_device
from gcab.distillation import distilled
from gcab.errors import GcabError
from gcab.inference import with_views
from gcab.lesson import Lesson, Observer, Study, logits_of, share_right
from gcab.methods.method import Method, Task, TaskImages
from gcab.model_folder import ModelFolder, number_of
from gcab.recipes import ENCODERS, RECIPES, first_config, next_config
from gcab.training.trainer import DivergedError, Epoch

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
    lesson: str | None = None  # names its photos, its settings and the model before it, as `gcab.teaching` does


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
        new = self._new_classes(names)
        config = self._config if self._sized else self._first(natural_size(images))
        first = len(self._labels)
        position = {name: first + index for index, name in enumerate(new)}
        pixels = as_images(images, config.scenario.image_size)
        data = TaskImages(pixels, torch.tensor([position[name] for name in names]))
        task = Task(len(self._tasks), first, tuple(map(str, new)))
        return Lesson.divide(task, data, held_out), new, config

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
            calibration = Calibration.fit(logits, held_out.labels, self._calibration, lesson.task.first)
        self._become(method, study.config, calibration)
        self._tasks.append(lesson.task)
        self._labels += new
        self._taught.append(
            Taught(
                classes=lesson.task.classes,
                images=len(lesson.train.labels),
                held_out=0 if held_out is None else len(held_out.labels),
                accuracy=accuracy,
                epochs=study.epochs,
                seconds=round(seconds, 3),
                when=datetime.now(UTC).isoformat(timespec="seconds"),
                lesson=name,
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
        first = 0
        for index, names in enumerate(description["tasks"]):
            model._tasks.append(Task(index, first, tuple(names)))
            first += len(names)
        model._labels = list(description.get("labels", [name for task in model._tasks for name in task.names]))
        model._taught = _taught(description.get("taught", [{"classes": task.classes} for task in model._tasks]))
        if not len(model._labels) == first or not len(model._taught) == len(model._tasks):
            raise GcabError(f"{folder}/model.json contradicts itself: it is damaged, restore it from a copy.")
        return model

    def _new_classes(self, names: Sequence[Label]) -> list[Label]:
        if len({type(name) for name in (*self._labels, *names)}) > 1:
            raise GcabError("some labels are text and some are whole numbers: use one kind for all classes.")
        new: list[Label] = sorted(set(names))
        known = {as_read(str(name)) for name in self._labels}
        again = [name for name in new if as_read(str(name)) in known]
        if again:
            raise GcabError(f"class '{again[0]}' was learned before: teach only new classes.")
        if len(new) < 2:
            raise GcabError(f"only one class was given ('{new[0]}'): a task needs at least two.")
        return new


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
        return [Taught(**{name: entry[name] for name in known if name in entry}) for entry in entries]
    except TypeError:
        raise GcabError("the record of what was taught in model.json is damaged: restore it from a copy.") from None
