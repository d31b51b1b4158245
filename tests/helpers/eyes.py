"""Small eyes, and what to teach them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcab import ContinualClassifier
from helpers import photos
from helpers.photos import Pixels
from helpers.settings import TINY_GCAB

SMALL = {"options.features": 64}


def pictures(label: int, count: int = 6, seed: int = 0) -> Pixels:
    return photos.pictures(name(label), count, seed=seed)


def many(*labels: int, count: int = 6, seed: int = 0) -> tuple[Pixels, list[str]]:
    """Pixels of some classes, named by letters."""
    images = np.concatenate([pictures(label, count, seed) for label in labels])
    return images, [name(label) for label in labels for _ in range(count)]


def name(label: int) -> str:
    return "abcdefgh"[label]


def eye(**settings: Any) -> ContinualClassifier:
    """A model that has learned nothing yet; `forgettable` and others are options of the method."""
    options = {f"options.{key}": value for key, value in settings.items() if key != "flip"}
    flip = {"augment.flip": True} if settings.get("flip") else {}
    return ContinualClassifier("eye", device="cpu", settings={**SMALL, **options, **flip})


def network() -> ContinualClassifier:
    """The same of the method gcab."""
    return ContinualClassifier(device="cpu", epochs=2, settings=TINY_GCAB)


def same(one: ContinualClassifier, other: ContinualClassifier) -> bool:
    """Bit for bit: every tensor, the classes, and what both say of new pictures."""
    states = [model.method.state_dict() for model in (one, other)]
    asked = many(0, 1, 2, 3, seed=9)[0]
    return (
        one.classes == other.classes
        and states[0].keys() == states[1].keys()
        and all(identical(value, states[1][key]) for key, value in states[0].items())
        and torch.equal(one.logits(asked), other.logits(asked))
    )


def identical(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)
