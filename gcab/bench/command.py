"""`gcab bench`: reference against fast, all in one run, all of it twice."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from gcab.bench.inference import count, time_inference
from gcab.bench.methods import time_methods
from gcab.bench.tables import tables
from gcab.bench.training import time_training
from gcab.bench.workload import Row, Say, Workload
from gcab.config import to_dict
from gcab.runs.environment import environment, hardware
from gcab.runs.files import write_json

SETS = 2  # of all measurements, so that their spread is known
PARTS = {"training": time_training, "inference": time_inference, "methods": time_methods}


def run_bench(work: Workload, path: Path | None, console: Console, command: str) -> None:
    """Measure, print, and if asked write all figures to a file."""
    with console.status("starting") as status:
        say: Say = status.update if console.is_terminal else partial(console.print, highlight=False)
        figures = measure(work, say)
    for table in tables(figures):
        console.print(table)
    if path is not None:
        write_json(path, {"format": 1, **environment(), "command": command, **figures})
        console.print(f"all figures: {path}", highlight=False, soft_wrap=True)


def measure(work: Workload, say: Say) -> Row:
    """All figures, as they are written."""
    measured: dict[str, list[list[Row]]] = {part: [] for part in PARTS}
    for number in range(1, SETS + 1):
        for part in work.parts:
            measured[part].append(PARTS[part](work, partial(say_of_set, say, number)))
    return {
        **hardware(work.device),
        "config": to_dict(work.config),
        "inference_precision": "bfloat16" if work.bfloat16 else "float32",
        "counts": count(work),
        **{part: [together(rows) for rows in zip(*sets, strict=True)] for part, sets in measured.items()},
    }


def say_of_set(say: Say, number: int, text: str) -> None:
    say(f"set {number} of {SETS}: {text}")


def together(rows: Sequence[Row]) -> Row:
    """Merge the rows of all sets into one: measured numbers, which are floats, become lists."""
    return {key: [row[key] for row in rows] if isinstance(value, float) else value for key, value in rows[0].items()}
