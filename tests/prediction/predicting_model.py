"""A model with awkward class names, taught in a second, and photos to show it."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gcab.classifier.learner import ContinualClassifier

NAMES = (("=wren", "[red]robin[/]"), ("Käuzchen 🦉", "owl\nby \x1b[31mnight"))
TINY = {"encoder.width": 16, "encoder.heads": 4, "training.batch_size": 8}


def make_model(folder: Path, held_out: float = 0.25) -> Path:
    """Two tasks of two classes, each with a colour of its own."""
    model = ContinualClassifier(epochs=3, device="cpu", image_size=8, settings=TINY)
    random = np.random.default_rng(0)
    for task, names in enumerate(NAMES):
        labels = list(names) * 24
        colours = np.array([colour(2 * task + names.index(name)) for name in labels])[:, None, None]
        model.learn((colours + random.integers(0, 90, (48, 8, 8, 3))).astype(np.uint8), labels, held_out=held_out)
    model.save(folder)
    return folder


def colour(number: int) -> list[int]:
    return [160 * (number % 2), 160 * (number // 2), 80]


def make_photos(folder: Path, count: int) -> list[Path]:
    """Different PNG files; in a folder the order of their names is the order of this list."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    files = [folder / f"{number:03d}.png" for number in range(count)]
    for number, file in enumerate(files):
        pixels = np.array(colour(number % 4)) + random.integers(0, 90, (10, 12, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(file)
    return files


def png_bytes() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (9, 9), "red").save(stream, format="PNG")
    return stream.getvalue()


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
