"""gcab as a program of its own, and images to give it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SMALL = ["--training.epochs=2", "--encoder.width=16", "--encoder.blocks=2", "--encoder.patch=4"]
COMMAND = (sys.executable, "-m", "gcab")
LIMIT = 1200  # seconds; only a hanging program takes that long, however busy the machine is


def gcab(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, as a person would, and wait for it."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, env=environment())


def start(*arguments: str | Path, folder: Path) -> subprocess.Popen[str]:
    """Run a command in `folder` without waiting for it."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unmeasured()
    )


def environment() -> dict[str, str]:
    """One thread: several would only get into each other's way on networks this small."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def unmeasured() -> dict[str, str]:
    """For programs that will be interrupted: that can strike while coverage holds its lock, which then stays locked."""
    return {name: value for name, value in environment().items() if not name.startswith("COVERAGE")}


def records(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The complete lines of a run's metrics; none if there is no such file yet."""
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes().split(b"\n")[:-1] if metrics.exists() else []
    return [record for record in map(json.loads, lines) if kind in (None, record["kind"])]


def without_seconds(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that two runs of one configuration must share."""
    return [{key: value for key, value in record.items() if key != "seconds"} for record in found]


def make_photos(root: Path, classes: Sequence[str], count: int = 10, side: int = 20) -> Path:
    """A folder of PNG files per class, each class with a colour of its own."""
    random = np.random.default_rng(0)
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        colour = np.array([number % 2, number // 2 % 2, number // 4 % 2]) * 160
        for index in range(count):
            pixels = (colour + random.integers(0, 95, (side, side + 4, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{index:02d}.png")
    return root
