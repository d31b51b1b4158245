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
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from gcab.classifier.assessment import assess
from gcab.classifier.distillation import Distillation
from gcab.classifier.forecast import forecast
from gcab.classifier.habits import ScikitHabits
from gcab.classifier.history import change
from gcab.classifier.housekeeping import forgotten, joined, known_place, place_of, renamed
from gcab.classifier.lesson import Lesson, Material
from gcab.classifier.logits import HeldOutLogits, can_be_left_out
from gcab.classifier.mirrors import try_mirrors
from gcab.classifier.model import Classifier, Knowledge, Label, Taught, as_of_now
from gcab.classifier.photos import Photos
from gcab.classifier.presets import (
    ENCODERS,
    RECIPES,
    USUAL_SIZE,
    first_config,
    next_config,
    own_size,
    settings_for,
    usual_method,
)
from gcab.config import RunConfig, override
from gcab.data.arrays import Images, as_batch, as_images, natural_size
from gcab.data.folder import as_read, class_files, labelled_files
from gcab.data.tasks import Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.method import grow
from gcab.methods.registry import method_named
from gcab.model.lesson_cache import cached_results, set_lesson_cache
from gcab.parallel.devices import choose_device
from gcab.runs.assemble import build_method
from gcab.sizes import Size
from gcab.training.trainer import DivergedError, Epoch

Labels = Sequence[Label] | np.ndarray[Any, Any] | Tensor

__all__ = ["ENCODERS", "RECIPES", "ContinualClassifier", "Label", "Labels", "Taught"]


class ContinualClassifier(Classifier, ScikitHabits):
    """An image classifier that learns new classes without the images of the old ones; scikit-learn's tools take it."""

    def __init__(
        self,
        method: str | None = None,
        *,
        encoder: str = "tiny",
        image_size: Size | None = None,
        recipe: str = "plain",
        epochs: int | None = None,
        seed: int = 1,
        device: str = "auto",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`image_size`: pixels a side, or height and width; None: a square that suits the first images.

        `encoder` is tiny, small or paper, or pretrained: a folder of the transformers library, an ONNX file or a name
        on Hugging Face's hub. `method` None: gcab, or frozen for a pretrained encoder.
        `settings` are any of `gcab train`, by dotted key.
        The recipe `plain` shows every image as it is, for 40 epochs; `photos` cuts, mirrors and recolours, for 500.
        """
        super().__init__(None, choose_device(device))
        self._given = {
            "method": method,
            "encoder": encoder,
            "image_size": image_size,
            "recipe": recipe,
            "epochs": epochs,
            "seed": seed,
            "device": device,
            "settings": settings,
        }
        image_size = own_size(encoder) if image_size is None else image_size
        method = method or usual_method(encoder)
        self._first = functools.partial(first_config, method, encoder, recipe, epochs, seed, settings or {})
        self._config: RunConfig = self._first(USUAL_SIZE if image_size is None else image_size)
        self._sized = image_size is not None
        self._mirrors_open = "augment.flip" not in (settings or {})

    @classmethod
    def _of(cls, known: Knowledge, device: torch.device) -> Self:
        config, model = known.config, cls(device=str(device))
        own = {"method": config.method, "image_size": config.scenario.image_size, "seed": config.seed}
        model._given = {**model._given, **own, "settings": settings_for(config)}
        model._take(known)
        return model

    def _take(self, known: Knowledge) -> None:
        """Replace all that this model knows."""
        self._known, self._config, self._sized = known, known.config, True

    @property
    def config(self) -> RunConfig:
        """Every setting of the lesson to come."""
        return self._config

    @property
    def image_size(self) -> Size:
        """The side in pixels, or height and width, that every image is brought to."""
        if not self._sized:
            raise GcabError("the size of the images is not known yet: it follows from the first that are learned.")
        return self._config.scenario.image_size

    def configure(
        self,
        *,
        encoder: str | None = None,
        image_size: Size | None = None,
        recipe: str | None = None,
        epochs: int | None = None,
        seed: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> "ContinualClassifier":
        """Settings for the tasks to come; the encoder, the method and the size are fixed by the first task."""
        self._config = next_config(self._config, encoder, recipe, epochs, seed, settings, image_size)
        self._mirrors_open &= "augment.flip" not in (settings or {})
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
        lesson = self.lesson(images, labels, held_out, patience)
        try:
            lesson.run(None if progress is None else lambda epoch, _: progress(epoch))
        except DivergedError as problem:
            raise GcabError(f"{problem.where}: the model is as it was before; {problem.advice}") from problem
        self.adopt(lesson, time.monotonic() - started)
        return self

    def lesson(self, images: Images, labels: Labels, held_out: float, patience: int | None) -> Lesson:
        """The first half of `learn`: a lesson that has not begun; it does not touch the model."""
        return self.lesson_of(*self.material(images, labels, held_out), patience)

    def lesson_of(self, config: RunConfig, material: Material, patience: int | None) -> Lesson:
        """A lesson of material that is ready."""
        method = build_method(config).to(self.device) if self._known is None else self._known.method
        return Lesson(method, config, material, self.device, patience)

    def material(self, images: Images, labels: Labels, held_out: float) -> tuple[RunConfig, Material]:
        """The settings of a lesson of these images, and its data."""
        images, names = as_batch(images), _plain_labels(labels)
        if len(names) != len(images):
            raise GcabError(f"{len(images)} images but {len(names)} labels: give one label per image.")
        config = self._config if self._sized else self._first(natural_size(images))
        new, again = self._new_classes(names, method_named(config.method).additive(config.options))
        first = len(self.classes)
        position = {**again, **{name: first + index for index, name in enumerate(new)}}
        data = TaskImages(
            as_images(images, config.scenario.image_size), torch.tensor([position[name] for name in names])
        )
        task = Task(len(self.tasks), first, tuple(map(str, new)))
        known = {label: str(self.classes[label]) for label in again.values()}
        chosen = data.held_out(held_out, apart=True)
        places = tuple(chosen.nonzero().flatten().tolist())
        material = Material(task, *data.parted(chosen), known, tuple(new), places)
        return self._with_mirrors(config, material.train), material

    def _with_mirrors(self, config: RunConfig, photos: TaskImages) -> RunConfig:
        """Decide by the photos of a first lesson whether mirror images count as the same, unless the user has."""
        settled = self._known is not None or config.augment.flip or not self._mirrors_open
        if settled or not method_named(config.method).sees(config.options):
            return config
        changed: RunConfig = override(config, {"augment.flip": try_mirrors(photos, self.device).helps})
        return changed

    def adopt(
        self, lesson: Lesson, seconds: float, name: str | None = None, photos: str | None = None
    ) -> HeldOutLogits | None:
        """The second half of `learn`: take over what a lesson has learned, and measure it on the held-out images.

        Returns the logits of those. `name` and `photos` identify the lesson and its images (see
        `gcab.classifier.teaching`).
        """
        material, held_out = lesson.material, lesson.material.held_out
        before = self._known or Knowledge(lesson.method, lesson.config)
        if held_out is not None and can_be_left_out(held_out):
            lesson.method.last_sight(material.task, held_out)
        found = assess(lesson, before)
        set_lesson_cache(lesson.method, active=False)
        first = found.expected[-1]
        taught = Taught(
            classes=material.task.classes,
            images=len(material.train.labels),
            held_out=0 if held_out is None else len(held_out.labels),
            accuracy=found.accuracy,
            epochs=lesson.epochs if lesson.method.trains else None,
            seconds=round(seconds, 3),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            lesson=name,
            again=tuple(material.again.values()),
            photos=photos,
            at_first=None if first is None else round(first, 2),
        )
        self._take(
            before.become(
                lesson.method,
                lesson.config,
                found.calibration,
                tasks=(*before.tasks, material.task),
                labels=(*before.labels, *material.new),
                taught=as_of_now((*before.taught, taught), found.expected),
            )
        )
        return found.held_out

    def distill(
        self,
        images: Images,
        labels: Labels | None = None,
        capacity: float = 0.8,
        settings: Mapping[str, Any] | None = None,
        watch: Callable[[float], None] = lambda _: None,
    ) -> "ContinualClassifier":
        """Distill the passes of all tasks into one (GCAB-Fast), with images of the task learned last: faster, smaller.

        If anything goes wrong, the model stays as it was. `watch` is called with the share that is done.
        """
        if isinstance(images, str | Path) and labels is None:
            images, labels = labelled_files(Path(images))
        names = None if labels is None else _plain_labels(labels)
        pixels = as_images(as_batch(images), self.method.setting.image_size)
        self._take(Distillation(self, pixels, names, capacity, settings).run(watch))
        return self

    def forget(self, label: Label, images: Images | None = None) -> tuple[str, ...]:
        """Remove a class; returns in words what is left of it. `images`: all it was learned from, or their folder.

        A model of the method `eye` is then the one that never saw the class; without sums by class
        (`options.forgettable`) it needs the images for that. If anything goes wrong, the model stays as it was.
        """
        if isinstance(images, str | Path):
            own = str(self.classes[known_place(label, self.classes)])
            files = class_files(Path(images), own)
            images = Photos.read(files, [own] * len(files), self.image_size, skip_unreadable=True).pixels
        known, left = forgotten(self.known, label, None if images is None else as_images(images, self.image_size))
        self._take(known)
        return left

    def rename(self, old: Label, new: Label) -> "ContinualClassifier":
        """Give a class another name; nothing else changes."""
        self._require_one_kind([new])
        self._take(renamed(self.known, old, new))
        return self

    def join(self, label: Label, other: Label) -> tuple[str, ...]:
        """Merge two classes under the first name; returns in words what is not as if they had been learned as one.

        A model of the method `eye` is then the one that learned them as one; of a network that is so for the eye and
        the class statistics. If anything goes wrong, the model stays as it was.
        """
        known, left = joined(self.known, label, other)
        self._take(known)
        return left

    def merge(self, other: "ContinualClassifier") -> "ContinualClassifier":
        """Add what another model has learned, exactly as if this one had learned it (methods `eye` and `frozen`).

        Its tasks follow, without the classes that both know. If anything goes wrong, the model stays as it was.
        """
        known, method = self.known, copy.deepcopy(self.method)
        lessons = {entry.lesson for entry in known.taught if entry.lesson}
        if other is self or any(entry.lesson in lessons for entry in other.taught):
            raise GcabError(
                "both models have learned the same photos, which would count twice: merge models that have not."
            )
        self._require_one_kind(other.classes)
        labels, tasks, taught = list(known.labels), list(known.tasks), list(known.taught)
        for task, entry in zip(other.tasks, other.taught, strict=True):
            its = other.classes[task.first : task.first + task.classes]
            new = [label for label in its if self._place(label) is None]
            again = (*entry.again, *(str(label) for label in its if label not in new))
            tasks.append(Task(len(tasks), len(labels), tuple(map(str, new))))
            taught.append(replace(entry, classes=len(new), accuracy=None, at_first=None, again=again))
            grow(method, tasks[-1], known.config.seed)
            labels += new
        own = {as_read(str(label)): place for place, label in enumerate(labels)}
        text = f"{len(other.tasks)} lesson{'s' * (len(other.tasks) != 1)} of another model"
        with cached_results(method):
            method.merge(other.method, [own[as_read(str(label))] for label in other.classes])
            expected = forecast(method, tuple(tasks))
        self._take(
            known.become(
                method,
                known.config,
                known.calibration.outdated(),
                tasks=tuple(tasks),
                labels=tuple(labels),
                taught=as_of_now(taught, expected),
                changes=(*known.changes, change("merged", text, len(tasks), len(labels))),
            )
        )
        return self

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
        if len({type(name) for name in (*self.classes, *names)}) > 1:
            raise GcabError("some labels are text and some are whole numbers: use one kind for all classes.")

    def _place(self, label: Label) -> int | None:
        return place_of(label, self.classes)


def _plain_labels(labels: Labels) -> list[Label]:
    """Labels as JSON keeps them: text or whole numbers."""
    if not isinstance(labels, Tensor) and hasattr(labels, "__array__"):
        labels = np.asarray(labels)
    plain = labels.tolist() if isinstance(labels, np.ndarray | Tensor) else labels
    if isinstance(plain, str) or not isinstance(plain, Iterable):
        raise GcabError(f"labels must be a list or an array, not {type(labels).__name__}: give one per image.")
    names = [label.item() if isinstance(label, np.generic) else label for label in plain]
    for name in names:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise GcabError(f"label {name!r} is a {type(name).__name__}: give text or whole numbers.")
    return names
