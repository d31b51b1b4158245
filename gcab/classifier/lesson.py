"""One lesson: new classes are learned from their images, with early stopping on held-out images; resumable."""

import copy
import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gcab.classifier.logits import accuracy_of, logits_of
from gcab.config import RunConfig
from gcab.data.augment import Augment
from gcab.data.tasks import OnProgress, Task, TaskImages, ignore
from gcab.errors import GcabError
from gcab.methods.method import Method
from gcab.model.lesson_cache import set_lesson_cache
from gcab.parallel.devices import suitable_threads
from gcab.training.task import TaskTraining
from gcab.training.trainer import Epoch, Trainer, preview

LOOKS = 40  # evaluations on held-out images, in a lesson of many epochs: each costs about half an epoch
Observer = Callable[[Epoch, float | None], object]  # sees each epoch, and the held-out accuracy where it was measured


@dataclass(frozen=True)
class Material:
    """The data of a lesson: a task, its training images, and its held-out images."""

    task: Task
    train: TaskImages
    held_out: TaskImages | None
    again: Mapping[int, str] = dataclasses.field(default_factory=dict)  # classes known before, by their labels
    new: tuple[str | int, ...] = ()  # the classes of the task as they were given
    places: tuple[int, ...] = ()  # of the images held out among all that were given

    @property
    def classes(self) -> dict[int, str]:
        """All that there are images of, by their labels."""
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
    risen: int = 0  # the last epoch that was more accurate than all before it
    state: dict[str, Tensor] = dataclasses.field(default_factory=dict)


class Lesson:
    """Trains a copy of a method on a lesson: `run` it, or `resume` a checkpoint and `run` the rest."""

    def __init__(
        self, method: Method, config: RunConfig, material: Material, device: torch.device, patience: int | None = None
    ) -> None:
        """`patience`: epochs without a better held-out accuracy until it stops; 0: never; None: a quarter of all."""
        if method.joint:
            raise GcabError(f"the method {config.method} needs all images at once: choose another to learn in steps.")
        if patience is not None and patience < 0:
            raise GcabError(f"the patience is {patience}: give a number of epochs, or 0 to learn to the end.")
        self.config, self.material, self.device = config, material, device
        self.planned = epochs = config.training.epochs_of(material.task.index) if method.learns(material.task) else 0
        self.patience = max(10, epochs // 4) if patience is None else patience
        self.every = max(1, min(self.patience or epochs, epochs // LOOKS))
        self.epochs, self.best = 0, Best()
        self.observe: Observer = lambda *_: None
        self.method = copy.deepcopy(method)
        self.method.options = config.options  # some may differ from task to task
        set_lesson_cache(self.method, active=True)
        self.training = TaskTraining(self._trainer(self.method), material.task, material.train, material.held_out)
        self.training.begin()
        self.method.first_sight(material.task, material.train)

    def run(self, observe: Observer | None = None, watch: OnProgress = ignore) -> Method:
        """Run the remaining epochs and the end of the task; returns the method, ready to predict."""
        self.observe = observe or self.observe
        with suitable_threads(self.device, self.config.features_per_batch()):
            if self.planned:
                self.training.run(self.after_epoch)
            if self.best.state:
                self.method.load_state_dict(self.best.state)
            self.training.end(watch)
        return self.method.eval()

    @property
    def scope(self) -> str | None:
        """A line for the user about what the network does not learn; None where it learns everything."""
        new, again, sums = self.material.task.names, ", ".join(self.material.again.values()), self.method.sums
        if not self.method.trains or (self.planned and not again):
            return None
        if self.planned:
            return f"the network learns {', '.join(new)}; more of {again} is for {sums}"
        why = f"{new[0]} alone gives it nothing to tell apart" if new else "it knows these classes"
        return f"the network stays as it is ({why}): {sums} learn from all photos"

    def after_epoch(self, epoch: Epoch) -> bool:
        """Evaluate on the held-out images; true stops the lesson after `patience` epochs without a better accuracy."""
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
        """Held-out accuracy among all classes, in per cent, if the lesson ended now: evaluated on a copy."""
        material = self.material
        if material.held_out is None:
            return None
        trial = copy.deepcopy(method).eval()
        preview(trial, material.task, material.train, self.config.seed, material.held_out)
        return accuracy_of(logits_of(trial, material.held_out.images, self.device), material.held_out.labels)

    def estimate(self) -> float:
        """Estimated seconds of the remaining epochs without early stopping, timed on a batch and a copy."""
        config, task = self.config, self.material.task
        if self.epochs == self.planned:
            return 0.0
        train = self.material.train.of(task.labels)
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

    def estimate_ending(self, images: Tensor) -> float:
        """Estimated seconds from the last epoch to the end with these images; 0 if the network is not trained."""
        if self.method.trains and not self.planned:
            return 0.0
        with suitable_threads(self.device, self.config.features_per_batch()):
            return self.method.ending_seconds(images)

    def position(self) -> dict[str, Any]:
        """The position of the lesson, for a checkpoint."""
        return {"epoch": self.epochs, "accuracy": self.best.accuracy, "risen": self.best.risen}

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, beside the position."""
        return {**self.training.state(), "best": self.best.state} if self.epochs else {}

    def resume(self, position: Mapping[str, Any], state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        if position["epoch"]:
            self.training.resume(position["epoch"], state)
            best = {name: value.to(self.device) for name, value in state["best"].items()}
            self.epochs, self.best = position["epoch"], Best(position["accuracy"], position["risen"], best)

    def _trainer(self, method: Method, epochs: int | None = None) -> Trainer:
        training = self.config.training
        if epochs is not None:
            training = dataclasses.replace(training, epochs=epochs, first_task=1.0)
        augment = Augment(self.config.augment, method.setting.mean, method.setting.std)
        return Trainer(method, training, augment, self.device, self.config.seed)
