"""One lesson: new classes are learned from their images, watched on images held out; it may stop and go on later."""

import copy
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from gcab.config import RunConfig
from gcab.data.arrays import natural_size
from gcab.data.augment import Augment
from gcab.data.decode import read_image
from gcab.data.tasks import Task, TaskImages, Watch, ignore
from gcab.errors import GcabError
from gcab.methods.method import Method
from gcab.parallel.devices import suitable_threads
from gcab.training.trainer import Epoch, Halfway, Trainer, finish, grow, preview

BATCH = 500
NAMED = 5  # unreadable photos that a sentence names
SAMPLE = 25  # photos that decide on the size
LOOKS = 40  # at the held-out images, in a lesson of many epochs: each costs about half an epoch
Observer = Callable[[Epoch, float | None], object]  # sees each epoch, and the held-out accuracy where it was measured


@dataclass(frozen=True)
class Lesson:
    """A task, its training images, and those the training never sees."""

    task: Task
    train: TaskImages
    held_out: TaskImages | None
    again: Mapping[int, str] = dataclasses.field(default_factory=dict)  # classes known before, by their labels

    @classmethod
    def divide(cls, task: Task, data: TaskImages, share: float, again: Mapping[int, str] | None = None) -> "Lesson":
        """Hold out a share of every class that has images enough, chosen by their pixels: the same on every machine."""
        return cls(task, *data.divided(share), again or {})

    @property
    def classes(self) -> dict[int, str]:
        """All that it has images of, by their labels."""
        return {**self.again, **dict(enumerate(self.task.names, self.task.first))}

    @property
    def too_small(self) -> list[str]:
        """Classes of which nothing is held out because they have too few images; none if nothing is held out at all."""
        if self.held_out is None:
            return []
        watched = set(self.held_out.labels.tolist())
        return [name for label, name in self.classes.items() if label not in watched]


@dataclass
class Best:
    """The epoch whose weights will be kept: the most accurate so far, the later one where two are equal."""

    accuracy: float = -1.0
    risen: int = 0  # the epoch that last did better than all before it
    state: dict[str, Tensor] = dataclasses.field(default_factory=dict)


class Study:
    """A method on its way through a lesson; the method it started from is not touched."""

    def __init__(
        self,
        method: Method,
        config: RunConfig,
        lesson: Lesson,
        device: torch.device,
        patience: int | None = None,
        observe: Observer | None = None,
    ) -> None:
        """`patience`: epochs without a better held-out accuracy until it stops; 0: never; None: a quarter of all."""
        if method.joint:
            raise GcabError(f"the method {config.method} needs all images at once: choose another to learn in steps.")
        if patience is not None and patience < 0:
            raise GcabError(f"the patience is {patience}: give a number of epochs, or 0 to learn to the end.")
        self.config, self.lesson, self.device = config, lesson, device
        self.planned = epochs = config.training.epochs_of(lesson.task.index) if method.trains else 0
        self.patience = max(10, epochs // 4) if patience is None else patience
        self.every = max(1, min(self.patience or epochs, epochs // LOOKS))
        self.observe = observe or (lambda *_: None)
        self.watch: Watch = ignore  # of what the method does after the last epoch, where that takes long
        self.method = copy.deepcopy(method)
        self.method.options = config.options  # some may differ from task to task
        grow(self.method, lesson.task, config.seed)
        self.method.begin_task(lesson.task)
        self.method.first_sight(lesson.task, lesson.train)
        self.trainer = self._trainer(self.method)
        self.epochs, self.best = 0, Best()
        self.halfway: Halfway | None = None

    def run(self) -> Method:
        """All epochs that are left, and the end of the lesson: the method afterwards, ready to predict."""
        lesson = self.lesson
        with suitable_threads(self.device, self.config.features_per_batch()):
            self.trainer.fit(lesson.task, lesson.train, self.after_epoch, self.halfway)
            if self.best.state:
                self.method.load_state_dict(self.best.state)
            seed, augment = self.config.seed, self.trainer.augment
            finish(self.method, lesson.task, lesson.train, seed, self.watch, lesson.held_out, augment)
        return self.method.eval()

    def after_epoch(self, epoch: Epoch) -> bool:
        """Look at the held-out images; true: they have not been told apart better for too long."""
        self.epochs, last = epoch.number, epoch.number == self.planned
        accuracy = self.accuracy(self.method) if last or epoch.number % self.every == 0 else None
        if accuracy is not None and self.patience:
            if accuracy > self.best.accuracy:
                self.best.risen = epoch.number
            if accuracy >= self.best.accuracy:
                state = {name: value.detach().clone() for name, value in self.method.state_dict().items()}
                self.best.accuracy, self.best.state = accuracy, state
        self.observe(epoch, accuracy)
        return accuracy is not None and bool(self.best.state) and epoch.number - self.best.risen >= self.patience

    def accuracy(self, method: Method) -> float | None:
        """Held-out images told apart among all classes, in per cent, if the lesson ended now: tried out on a copy."""
        lesson = self.lesson
        if lesson.held_out is None:
            return None
        trial = copy.deepcopy(method).eval()
        preview(trial, lesson.task, lesson.train, self.config.seed, lesson.held_out)
        return share_right(logits_of(trial, lesson.held_out.images, self.device), lesson.held_out.labels)

    def estimate(self) -> float:
        """Seconds that the epochs left will take if none is spared, measured on a batch and a copy."""
        config, task, train = self.config, self.lesson.task, self.lesson.train
        if self.epochs == self.planned:
            return 0.0
        some = TaskImages(train.images[: config.training.batch_size], train.labels[: config.training.batch_size])
        measured: list[float] = []
        method = copy.deepcopy(self.method)
        with suitable_threads(self.device, config.features_per_batch()):
            self._trainer(method, epochs=2).fit(task, some, lambda epoch: measured.append(epoch.seconds))
            start = time.perf_counter()
            self.accuracy(method)
        watching = time.perf_counter() - start
        steps = max(1, len(train.labels) // config.training.batch_size)
        return (self.planned - self.epochs) * (steps * measured[-1] + watching / self.every)

    def estimate_ending(self) -> float:
        """Seconds from the last epoch to the end, where that takes long."""
        with suitable_threads(self.device, self.config.features_per_batch()):
            return self.method.ending_seconds(self.lesson.train.images)

    def position(self) -> dict[str, Any]:
        """Where the lesson stands, for a checkpoint."""
        return {"epoch": self.epochs, "accuracy": self.best.accuracy, "risen": self.best.risen}

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs beside the position."""
        optimiser = self.trainer.optimiser
        if not self.epochs or optimiser is None:
            return {}
        return {"method": dict(self.method.state_dict()), "optimiser": optimiser.state_dict(), "best": self.best.state}

    def resume(self, position: dict[str, Any], state: dict[str, Any]) -> None:
        """Stand where a checkpoint stood."""
        if position["epoch"]:
            self.method.load_state_dict(state["method"], strict=True)
            best = {name: value.to(self.device) for name, value in state["best"].items()}
            self.best = Best(position["accuracy"], position["risen"], best)
            self.epochs, self.halfway = position["epoch"], Halfway(position["epoch"], state["optimiser"])

    def _trainer(self, method: Method, epochs: int | None = None) -> Trainer:
        training = self.config.training
        if epochs is not None:
            training = dataclasses.replace(training, epochs=epochs, first_task=1.0)
        augment = Augment(self.config.augment, method.setting.mean, method.setting.std)
        return Trainer(method, training, augment, self.device, self.config.seed)


def logits_of(
    method: Method, pixels: Tensor, device: torch.device, predict: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Logits (n, classes) on the host for images as bytes; whoever asks often keeps the method's predictor."""
    predict, normalise = predict or method.predictor(), method.setting.normalise
    with torch.inference_mode():
        return torch.cat([predict(normalise(part.to(device))).float().cpu() for part in pixels.split(BATCH)])


def share_right(logits: Tensor, labels: Tensor) -> float:
    """Per cent of images whose strongest class is theirs."""
    return float((logits.argmax(dim=1) == labels).double().mean() * 100)


@dataclass(frozen=True)
class Photos:
    """The photos of a lesson in memory."""

    pixels: Tensor  # (n, 3, size, size) bytes
    labels: list[str]
    unreadable: tuple[str, ...]  # a sentence for each that is left out

    @classmethod
    def read(cls, files: Sequence[Path], names: Sequence[str], size: int, skip_unreadable: bool) -> "Photos":
        """All that can be read; the others are a reason to stop, unless they are to be skipped."""

        def read(file: Path) -> Tensor | str:
            try:
                return read_image(file, size)
            except GcabError as problem:
                return str(problem).rstrip(".")

        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            found = list(zip(pool.map(read, files), names, strict=True))
        unreadable = tuple(sentence for sentence, _ in found if isinstance(sentence, str))
        if unreadable and not skip_unreadable:
            raise GcabError(refusal(unreadable, len(files)))
        labels = [name for image, name in found if isinstance(image, Tensor)]
        lost = sorted(set(names) - set(labels))
        if lost:
            raise GcabError(f"no photo of the class '{lost[0]}' can be read: add some or remove its folder.")
        return cls(torch.stack([image for image, _ in found if isinstance(image, Tensor)]), labels, unreadable)


def common_size(files: Sequence[Path]) -> int:
    """The size that suits most photos, judged by a few of them from all classes."""
    sizes = []
    for file in (*files[:: max(1, len(files) // SAMPLE)], *files):
        with suppress(GcabError):
            sizes.append(natural_size([file]))
        if len(sizes) == min(SAMPLE, len(files)):
            break
    if not sizes:
        raise GcabError(f"not one of {len(files)} photos can be read: check that they are images.")
    return median_low(sizes)


def refusal(unreadable: Sequence[str], total: int) -> str:
    """One sentence about photos that stop a lesson."""
    more = f"; and {len(unreadable) - NAMED} more" if len(unreadable) > NAMED else ""
    return (
        f"{len(unreadable)} of {total} photos cannot be read, so nothing was learned ({'; '.join(unreadable[:NAMED])}"
        f"{more}): repair or remove them, or leave them out with --skip-unreadable."
    )
