"""Tiny tasks with images that can be learned, the setting of a tiny network, and the options of GCAB's profiles."""

from typing import Any

import torch

from gcab.data.tasks import Setting, Task, TaskImages
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.model.encoder import EncoderConfig
from gcab.model.options import NetworkOptions

IMAGE_SIZE, TOKENS, WIDTH = 8, 4, 16
ENCODER = EncoderConfig(kind="convit", blocks=2, width=WIDTH, heads=4, mlp_ratio=2.0, patch=4, drop_path=0.0)


def setting(encoder: EncoderConfig = ENCODER) -> Setting:
    return Setting(encoder, IMAGE_SIZE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


def tasks_of(*sizes: int) -> list[Task]:
    """Tasks of so many classes."""
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [Task(i, firsts[i], tuple(f"class {firsts[i] + c}" for c in range(size))) for i, size in enumerate(sizes)]


def images_of(task: Task, count: int = 24, seed: int = 0) -> TaskImages:
    """Noise around one random image per class: something a network can learn."""
    shape = (task.classes, 3, IMAGE_SIZE, IMAGE_SIZE)
    centres = torch.randint(40, 216, shape, generator=torch.Generator().manual_seed(task.index))
    labels = torch.arange(count) % task.classes
    noise = torch.randint(-20, 21, (count, *shape[1:]), generator=torch.Generator().manual_seed(100 + seed))
    return TaskImages((centres[labels] + noise).to(torch.uint8), labels + task.first)


def gcab_options(profile: str = "official", network: dict[str, Any] | None = None, **changes: Any) -> GcabOptions:
    """A profile's options, from its dotted keys, with changes."""
    settings: dict[str, Any] = {}
    of_network: dict[str, Any] = {}
    for key, value in Gcab.profiles[profile].items():
        part, *path = key.split(".")
        if part == "options":
            (of_network if path[0] == "network" else settings)[path[-1]] = value
    return GcabOptions(**(settings | changes), network=NetworkOptions(**(of_network | (network or {}))))
