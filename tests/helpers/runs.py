"""Whole runs small enough for a fraction of a second: six classes, two or three tasks, tiny images."""

import gc
import weakref
from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from gcab.config import RunConfig, leaves, resolve, to_dict
from gcab.data.images import ImageSet
from gcab.data.scenario import Scenario, TaskStream
from gcab.data.tasks import Task
from gcab.methods.method import Method
from gcab.methods.registry import methods
from gcab.parallel.devices import suitable_threads
from gcab.runs.environment import environment
from gcab.runs.folder import RunFolder
from gcab.runs.run import Data, Observer, Run
from gcab.sizes import Size, sides
from helpers.processes import without_seconds
from helpers.settings import FEW_TOKENS, TINY

CPU = torch.device("cpu")
CLASSES = tuple(f"shape {label}" for label in range(6))
SQUARE, TALL = 8, (12, 8)
BUFFER = 7  # images, for methods that store some
BUDGETS = {  # of methods that have such an option
    "buffer": BUFFER,
    "distillation_steps": 20,
    "features": 64,
    "anchor_steps": 10,
    "memory_steps": 5,
}
TOGETHER, INHERITED = 3, 6  # options that are changed at once: a method's own, and those that another has, too
EYE = 64  # features, where a profile has an eye
SMALL: dict[str, Any] = {
    **TINY,
    **FEW_TOKENS,
    "encoder.blocks": 2,
    "encoder.drop_path": 0.2,  # with the crop and the flip: every source of randomness is on
    "augment.crop": "pad",
    "augment.padding": 1,
    "augment.flip": True,
    "scenario.order": "random",
    "training.batch_size": 12,
    "training.epochs": 2,
    "training.warmup_epochs": 1,
}


@dataclass(frozen=True)
class Case:
    """A method under a profile, with options turned from their defaults."""

    method: str
    profile: str
    changes: dict[str, Any] = field(default_factory=dict)
    scenario: str = "digits/3"
    image_size: Size = SQUARE

    def __str__(self) -> str:
        change = "".join(f"-{key.removeprefix('options.')}-{value}" for key, value in self.changes.items())
        return f"{self.method}-{self.profile}{change}"

    def config(self, seed: int = 1, changes: dict[str, Any] | None = None) -> RunConfig:
        options = methods()[self.method].Options()
        budget = {f"options.{name}": value for name, value in BUDGETS.items() if hasattr(options, name)}
        if "options.eye" in methods()[self.method].profiles.get(self.profile, {}):
            budget["options.eye"] = EYE
        layers = {**SMALL, "scenario.image_size": self.image_size, **budget, **self.changes, **(changes or {})}
        return resolve(self.scenario, self.method, self.profile, seed, layers)


def profile_cases() -> list[Case]:
    """Every method under every profile that says something about it; images that are not square, where they may be."""
    return [
        Case(name, profile, image_size=SQUARE if kind.square else TALL)
        for name, kind in methods().items()
        for profile in kind.profiles or ["official"]
    ]


def switch_cases() -> list[Case]:
    """Every choice among the options of every method, three at a time, and more where another method has them, too."""
    scenario = "digits/2"  # the profiles go through three tasks with every method
    cases = []
    for name, kind in methods().items():
        parents = [other for other in methods().values() if other is not kind and issubclass(kind, other)]
        known = {field.name for other in parents for field in fields(other.Options)}
        switched = switches(name)
        own = groups([(key, value) for key, value in switched if key.split(".")[1] not in known], TOGETHER)
        inherited = groups([(key, value) for key, value in switched if key.split(".")[1] in known], INHERITED)
        for mine, others in zip_longest(own, inherited):
            cases.append(Case(name, "official", {**(mine or {}), **(others or {})}, scenario))
    return cases


def switches(method: str) -> list[tuple[str, Any]]:
    """Options with every value but the one they have."""
    found = []
    for key, kind, value in leaves(resolve("digits/3", method, "official")):
        if key.startswith("options."):
            values = get_args(kind) if get_origin(kind) is Literal else [True, False] if kind is bool else []
            found += [(key, other) for other in values if other != value]
    return found


def groups(switched: list[tuple[str, Any]], size: int) -> list[dict[str, Any]]:
    """A few options at a time that lie far apart in the list, as neighbours tend to depend on each other.

    Values of one option, which are neighbours, are in groups of their own.
    """
    values = Counter(key for key, _ in switched)
    count = max(-(-len(switched) // size), *values.values()) if switched else 0
    return [dict(switched[first::count]) for first in range(count)]


def labelled_images(per_class: int, seed: int, size: Size) -> ImageSet:
    """Noise around one random image per class: something a network can learn."""
    shape = (3, *sides(size))
    centres = torch.randint(60, 196, (len(CLASSES), *shape), generator=torch.Generator().manual_seed(1))
    labels = torch.arange(per_class * len(CLASSES)) % len(CLASSES)
    noise = torch.randint(-40, 41, (len(labels), *shape), generator=torch.Generator().manual_seed(seed))
    return ImageSet((centres[labels] + noise).to(torch.uint8), labels, CLASSES)


@dataclass(frozen=True)
class WatchedScenario(Scenario):
    """Remembers every stream it opened, and whether its images are still in memory."""

    streams: list[TaskStream] = field(default_factory=list)
    tensors: list["weakref.ref[Tensor]"] = field(default_factory=list)

    def open(self, task: Task, images: ImageSet) -> TaskStream:
        stream = super().open(task, images)
        self.streams.append(stream)
        self.tensors.append(weakref.ref(stream.train().images))
        return stream

    def tasks_in_memory(self) -> int:
        if any(tensor() is not None for tensor in self.tensors):
            gc.collect()
        return sum(tensor() is not None for tensor in self.tensors)


def data_for(config: RunConfig, per_task: int = 24) -> Data:
    """Two batches of images to learn from in every task."""
    scenario = Scenario.build(config.scenario, config.seed, CLASSES)
    watched = WatchedScenario(scenario.config, scenario.seed, scenario.tasks, scenario.order)
    size = config.scenario.image_size
    train = labelled_images(per_task // scenario.tasks[0].classes, seed=2, size=size)
    return Data(train, labelled_images(4, seed=3, size=size), watched)


@dataclass(frozen=True)
class FinishedRun:
    """An uninterrupted run, with the method as training left it."""

    config: RunConfig
    data: Data
    run: RunFolder
    method: Method

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.data.scenario.merged() if self.method.joint else self.data.scenario.tasks


def finished_run(config: RunConfig, path: Path, observe: Observer | None = None) -> FinishedRun:
    """What `train_run` does, keeping hold of the method; no checkpoint within a task."""
    data = data_for(config)
    tasks = [list(task.names) for task in data.scenario.tasks]
    run = RunFolder.prepare(path, {**environment(), "format": 1, "config": to_dict(config), "tasks": tasks})
    experiment = Run(config, data, run, CPU, observe or ignore, checkpoint_seconds=1e9)
    with suitable_threads(CPU, config.features_per_batch()):  # more add numbers up in another order
        experiment.finish()
    return FinishedRun(config, data, run, experiment.method)


def ignore(record: dict[str, Any]) -> None:
    """An observer that looks away."""


def same_results(one: RunFolder, other: RunFolder) -> None:
    """Every number two runs left behind is the same, but for the time they took."""
    records = [without_seconds(run.records()) for run in (one, other)]
    for first, second in zip(*records, strict=True):
        assert first == second, f"{first} is not {second}"
    assert one.arrays_names() == other.arrays_names() != []
    for name in one.arrays_names():
        ours, theirs = one.load_arrays(name), other.load_arrays(name)
        assert ours is not None
        assert theirs is not None
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours), f"{name} differs"
    changed = differing(weights(one), weights(other))
    assert not changed, f"{changed} differ"


def weights(run: RunFolder) -> dict[str, Tensor]:
    return safetensors.torch.load_file(run.model / "weights.safetensors")


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that are not the same bit for bit."""
    return [name for name in {**one, **other} if name not in one or name not in other or not equal(one, other, name)]


def equal(one: dict[str, Tensor], other: dict[str, Tensor], name: str) -> bool:
    return one[name].dtype == other[name].dtype and torch.equal(one[name], other[name])
