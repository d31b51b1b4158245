"""Tiny models: taught in a moment, or not at all but with every parameter away from its special starting value."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcab.classifier.calibration import Calibration
from gcab.classifier.learner import ContinualClassifier
from gcab.config import resolve
from gcab.data.tasks import Task, TaskImages
from gcab.methods.gcab import Gcab
from gcab.methods.method import grow
from gcab.runs.assemble import build_method, save_method
from gcab.training.trainer import finish
from helpers.photos import pictures
from helpers.settings import FEW_FEATURES, FEW_TOKENS, TINY, tiny

SIZE = 16
NAMES = ("wren", "Grünfink", 'the "robin" <b>', "owl\n", "tit")


def tasks_of(count: int) -> list[Task]:
    """Two classes in the first task and three in each later one."""
    tasks: list[Task] = []
    for index in range(count):
        first = sum(task.classes for task in tasks)
        tasks.append(Task(index, first, tuple(f"{name} {index}" for name in NAMES[: 3 if index else 2])))
    return tasks


def random_bytes(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def save_tiny(folder: Path, method: str = "gcab", profile: str = "extended", tasks: int = 2, flip: bool = True) -> None:
    """A calibrated model folder after so many tasks, without training."""
    quick: dict[str, Any] = {"options.distillation_steps": 3, "options.views": 1} if method == "gcab-fast" else {}
    if profile == "extended" and method in ("gcab", "gcab-fast"):
        quick |= FEW_FEATURES
    quick |= {"scenario.image_size": SIZE, "augment.flip": flip}
    config = resolve("folder/1", method, profile, changes={**TINY, **FEW_TOKENS, **quick})
    built, stream = build_method(config), tasks_of(tasks)
    generator = torch.Generator().manual_seed(5)
    for task in stream:
        grow(built, task, config.seed)
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        images = random_bytes(12, 3, SIZE, SIZE, seed=task.index)
        finish(built.eval(), task, TaskImages(images, task.first + torch.arange(12) % task.classes), config.seed)
    if isinstance(built, Gcab) and built.referee is not None:
        built.referee.weights.copy_(torch.tensor([0.3, 0.01, 3.0]))  # every opinion is heard
    held_out = random_bytes(60, 3, SIZE, SIZE, seed=99)
    with torch.no_grad():
        logits = built.predict(built.setting.normalise(held_out))
    calibration = Calibration.fit(logits, torch.arange(60) % logits.shape[1])
    save_method(folder, built, config, stream, {"calibration": calibration.to_dict()})


def tiny_model(
    folder: Path, method: str = "gcab", profile: str = "extended", tasks: int = 2, flip: bool = True
) -> ContinualClassifier:
    save_tiny(folder, method, profile, tasks, flip)
    return ContinualClassifier.load(folder, device="cpu")


AWKWARD = (("=wren", "[red]robin[/]"), ("Käuzchen 🦉", "owl\nby \x1b[31mnight"))  # for whoever prints names


def lessons(
    tasks: Sequence[Sequence[str]],
    method: str = "gcab",
    image_size: int = 8,
    epochs: int = 1,
    held_out: float = 0.25,
    changes: Mapping[str, Any] | None = None,
) -> Iterator[ContinualClassifier]:
    """A model after each of its lessons, so small that each takes a moment."""
    settings = {**tiny(method), "training.batch_size": 8, **(changes or {})}
    model = ContinualClassifier(method, image_size=image_size, epochs=epochs, device="cpu", settings=settings)
    for names in tasks:
        photos = np.concatenate([pictures(name, 24, image_size) for name in names])
        yield model.learn(photos, [name for name in names for _ in range(24)], held_out=held_out)


def awkward_model(folder: Path, held_out: float = 0.25) -> Path:
    """Two tasks of two classes whose names are hard to print."""
    *_, model = lessons(AWKWARD, epochs=3, held_out=held_out, changes={"options.trial": False})
    model.save(folder)
    return folder
