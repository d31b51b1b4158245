"""Runs that take a second: six digits in a few tasks, and test images enough for several ranks to share."""

from typing import Any

import torch
from torch import Tensor

from gcab.config import RunConfig, resolve
from gcab.data.digits import load
from gcab.data.images import ImageSet
from gcab.data.scenario import Scenario
from gcab.methods.registry import method_named, methods
from gcab.runs.run import Data
from helpers.settings import FEW_TOKENS, tiny

CPU = torch.device("cpu")
CLASSES = 6
LEARNED, TESTED = 8, 12  # images of each class
SMALL: dict[str, Any] = {
    **FEW_TOKENS,
    "encoder.drop_path": 0.3,
    "augment.randaugment": True,  # with the crop and drop-path: every source of randomness is on
    "augment.flip": True,
    "training.batch_size": 12,
    "training.epochs": 2,
    "training.lr": 0.005,
    "training.warmup_epochs": 0,
}
# Without those that train nothing, have one task alone or are made of another model.
OTHERS = sorted(methods().keys() - {"eye", "frozen", "gcab", "gcab-fast", "joint", "untrained"})
CASES = (("gcab", "extended"), ("gcab", "official"), ("gcab", "paper"), *((name, "official") for name in OTHERS))


def tasks_of(method: str) -> int:
    """GCAB's cascade has a second step from the third task on; to others every later task is like the second."""
    return 3 if method == "gcab" else 2


def config_of(method: str, profile: str) -> RunConfig:
    buffer = {"options.buffer": 24} if hasattr(method_named(method).Options(), "buffer") else {}
    drop_path = {"encoder.drop_path": 0.0} if profile == "paper" else {}
    changes = {**SMALL, **tiny(method, profile), **buffer, **drop_path}
    return resolve(f"digits/{tasks_of(method)}", method, profile, changes=changes)


def data_of(config: RunConfig) -> Data:
    digits = load(None, "train", config.scenario.image_size)
    names = digits.classes[:CLASSES]
    turn = torch.zeros_like(digits.labels)  # how many images of the same digit came before
    for label in range(CLASSES):
        same = digits.labels == label
        turn[same] = torch.arange(int(same.sum()))
    few = digits.labels < CLASSES

    def part(chosen: Tensor) -> ImageSet:
        return ImageSet(digits.images[chosen], digits.labels[chosen], names)

    scenario = Scenario.build(config.scenario, config.seed, names)
    return Data(part(few & (turn < LEARNED)), part(few & (turn >= LEARNED) & (turn < LEARNED + TESTED)), scenario)
