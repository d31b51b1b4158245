"""From a data set to a stream of tasks, each of which can be read only while it lasts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from gcab.data.images import ImageSet
from gcab.data.registry import DATASETS, dataset
from gcab.data.tasks import Task, TaskImages
from gcab.errors import GcabError
from gcab.seeds import generator
from gcab.sizes import Size


@dataclass(frozen=True)
class ScenarioConfig:
    """Which classes arrive when."""

    name: str = "cifar100/10"
    dataset: str = "cifar100"
    tasks: int = 10
    sizes: tuple[int, ...] = ()  # classes in each task where they are not all equal
    order: Literal["paper", "sorted", "random"] = "random"  # paper: the authors' order; random: from the run's seed
    validation: float = 0.0  # share of the training images held out and tested on, in place of the test images
    image_size: Size = 32  # to which the centre of every image is brought


class ClosedTaskError(GcabError):
    """A task's images were asked for after the task had ended."""


class TaskStream:
    """The training images of one task; `close` makes them unreadable for good, by this stream or any other."""

    def __init__(self, task: Task, train: TaskImages, ended: set[int]) -> None:
        self.task = task
        self._train: TaskImages | None = train
        self._ended = ended  # the scenario's

    def train(self) -> TaskImages:
        require_open(self.task, self._ended)
        assert self._train is not None, "only a task that has ended has lost its images"
        return self._train

    def close(self) -> None:
        self._train = None
        self._ended.update(self.task.labels)


def require_open(task: Task, ended: set[int]) -> None:
    """Refuse a task with a class whose task has ended."""
    if not ended.isdisjoint(task.labels):
        raise ClosedTaskError(f"task {task.index + 1} has ended: its images can no longer be read.")


@dataclass(frozen=True)
class Scenario:
    """Which classes each task brings, and the way to their images."""

    config: ScenarioConfig
    seed: int
    tasks: tuple[Task, ...]
    order: tuple[int, ...]  # position -> class of the data set
    ended: set[int] = field(default_factory=set, init=False, repr=False, compare=False)  # classes of closed tasks

    @staticmethod
    def build(config: ScenarioConfig, seed: int, classes: Sequence[str]) -> "Scenario":
        if len(classes) < 2:
            raise GcabError(
                f"{config.dataset} has one class only ('{classes[0]}'): there must be at least two to tell apart."
            )
        order = class_order(config, seed, len(classes))
        sizes = config.sizes or equal_sizes(len(classes), config.tasks)
        if len(sizes) != config.tasks or sum(sizes) != len(classes) or min(sizes) < 1:
            raise GcabError(
                f"scenario.sizes {list(sizes)} must be {config.tasks} positive numbers that add up to the "
                f"{len(classes)} classes of {config.dataset}."
            )
        tasks, first = [], 0
        for index, size in enumerate(sizes):
            names = tuple(classes[order[position]] for position in range(first, first + size))
            tasks.append(Task(index, first, names))
            first += size
        return Scenario(config, seed, tuple(tasks), order)

    def merged(self) -> tuple[Task, ...]:
        """All tasks as one, for joint training."""
        return (Task(0, 0, tuple(name for task in self.tasks for name in task.names)),)

    def relabel(self, labels: Tensor) -> Tensor:
        """Labels of the data set as positions in the order of arrival."""
        return torch.argsort(torch.tensor(self.order))[labels]

    def held_out(self, images: ImageSet) -> Tensor:
        """Indices of the training images that take the place of the test images; none where nothing is held out."""
        share = self.config.validation
        return split_off(images, share, self.seed) if share > 0 else torch.empty(0, dtype=torch.long)

    def open(self, task: Task, images: ImageSet) -> TaskStream:
        """The only way to a task's training images, until a stream of them is closed."""
        require_open(task, self.ended)
        labels = self.relabel(images.labels)
        belongs = (labels >= task.first) & (labels < task.first + task.classes)
        belongs[self.held_out(images)] = False
        members = belongs.nonzero().squeeze(1)
        missing = set(task.labels) - set(labels[members].tolist())
        if missing:
            raise GcabError(f"class '{task.names[min(missing) - task.first]}' has no training images: add some.")
        return TaskStream(task, TaskImages(images.images[members], labels[members]), self.ended)


def class_order(config: ScenarioConfig, seed: int, classes: int) -> tuple[int, ...]:
    if config.order == "random":
        return tuple(torch.randperm(classes, generator=generator(seed, "class order")).tolist())
    if config.order == "sorted":
        return tuple(range(classes))
    order = dataset(config.dataset).order
    if order is None:
        known = ", ".join(entry.name for entry in DATASETS.values() if entry.order is not None)
        raise GcabError(
            f"the authors' class order is known for {known} only: set scenario.order=random for {config.name}."
        )
    return order


def equal_sizes(classes: int, tasks: int) -> tuple[int, ...]:
    """Classes per task, as equal as they can be, the larger first."""
    if tasks > classes:
        raise GcabError(f"{classes} classes cannot be split into {tasks} tasks: ask for {classes} tasks or fewer.")
    base, rest = divmod(classes, tasks)
    return tuple(base + (index < rest) for index in range(tasks))


def split_off(images: ImageSet, share: float, seed: int) -> Tensor:
    """Indices of a stratified split: a share of every class, at least one image of it and not all."""
    shuffled = torch.randperm(len(images.labels), generator=generator(seed, "validation"))
    taken = []
    for label in images.labels.unique().tolist():
        members = shuffled[images.labels[shuffled] == label]
        if len(members) < 2:
            raise GcabError(f"class '{images.classes[label]}' has one training image only: none can be held out.")
        taken.append(members[: min(max(1, round(share * len(members))), len(members) - 1)])
    return torch.cat(taken).sort().values
