"""Photos to teach from: shapes in a colour each, drawn anew for every file."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

WEEK1 = ("circle", "square")
WEEK2 = ("bar", "cross", "ring")
COLOURS = {"circle": "red", "square": "blue", "bar": "green", "cross": "yellow", "ring": "purple"}
# A network of a few thousand weights: every lesson of a test takes a second or less.
SMALL = {"encoder.width": 16, "encoder.blocks": 1}
SET = [argument for key, value in SMALL.items() for argument in ("--set", f"{key}={value}")]
COMMAND = (sys.executable, "-m", "gcab")


def draw(name: str, random: np.random.Generator, side: int) -> Image.Image:
    """One photo of a shape, somewhere on a noisy ground."""
    ground = random.integers(150, 255, (side, side, 3), dtype=np.uint8)
    image = Image.fromarray(ground)
    pen = ImageDraw.Draw(image)
    size = int(random.integers(side // 2, side - 2))
    left, top = (int(value) for value in random.integers(0, side - size, 2))
    box, colour = (left, top, left + size, top + size), COLOURS[name]
    middle = (top + top + size) // 2
    if name == "circle":
        pen.ellipse(box, fill=colour)
    elif name == "ring":
        pen.ellipse(box, outline=colour, width=max(1, side // 8))
    elif name == "square":
        pen.rectangle(box, fill=colour)
    else:
        pen.line((left, middle, left + size, middle), fill=colour, width=max(1, side // 5))
        if name == "cross":
            pen.line((left + size // 2, top, left + size // 2, top + size), fill=colour, width=max(1, side // 5))
    return image


def make_shapes(root: Path, names: Sequence[str], count: int = 12, side: int = 8, seed: int = 0) -> Path:
    """A folder of PNG files per class."""
    random = np.random.default_rng(seed)
    for name in names:
        (root / name).mkdir(parents=True)
        for index in range(count):
            draw(name, random, side).save(root / name / f"{index:03d}.png")
    return root


def environment() -> dict[str, str]:
    """One thread: several would only get into each other's way on networks this small."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def gcab(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a person would, and wait for it."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment())
