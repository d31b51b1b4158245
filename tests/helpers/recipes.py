"""Every recipe of the paper in seconds: the digits in three tasks, a network of width 16, one epoch or few.

`PYTHONPATH=tests python -m helpers.recipes` writes expected.json anew, for a change that is meant to change numbers.
"""

import json
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from gcab.methods.registry import methods
from gcab.paper.compared import COMPARISONS
from gcab.paper.jobs import Job, of_methods, plan, run_jobs
from gcab.paper.publishing import publish
from gcab.paper.recipes import RECIPES
from gcab.parallel.devices import suitable_threads
from gcab.runs.folder import RunFolder
from helpers.settings import FEW_FEATURES, FEW_TOKENS, TINY

EXPECTED = Path(__file__).parents[1] / "figures" / "expected.json"
CPU = torch.device("cpu")
SCENARIO = "digits/3"
SHORT: dict[str, Any] = {
    **TINY,
    **FEW_TOKENS,
    "training.batch_size": 32,
    "training.lr": 5e-3,
    "training.warmup_epochs": 0,
    "options.distillation_steps": 40,
    "options.views": 1,
}
OWN: dict[str, dict[str, Any]] = {  # heads that are sure of something, so that it matters how they are imitated
    "distillation": {"training.epochs": 5, "options.distillation_lr": 5e-3}
}
OF_COMPARISONS = ("er", "sdc", "gcab")  # of some thirty rows; the others stay empty
CLOCKS = ("Seconds", "Plain, ms", "Recorded, ms", "Device")  # what another machine is free to change

# Another CPU, or another torch, rounds differently: losses keep their first digits, and of 360 test images some change
# sides. The smallest change of a method or of the training moves a loss by more.
LOSS_TOLERANCE = 0.02  # of the value; of a divergence, too
POINTS = 4.0  # of a percentage, about 14 test images


@contextmanager
def few_features() -> Iterator[None]:
    """For a while the default profile's eye has few features; a setting would also reach the rows without an eye."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in FEW_FEATURES.items():
            patch.setitem(methods()["gcab"].profiles["extended"], key, value)
        yield


def jobs_of(name: str, root: Path, scenario: str = SCENARIO, epochs: int = 1, **given: Any) -> list[Job]:
    return plan(RECIPES[name], root, [scenario], epochs=epochs, settings={**SHORT, **OWN.get(name, {})}, **given)


def made(jobs: list[Job]) -> list[RunFolder]:
    """The runs of these jobs, finished."""
    with suitable_threads(CPU, 0):
        run_jobs(jobs, None, CPU, Console(quiet=True), "gcab figure")
    return [RunFolder.open(job.path) for job in jobs]


def numbers_of(name: str, root: Path) -> dict[str, Any]:
    """The lines of a recipe's table, and the losses that every run of it ends with."""
    jobs = jobs_of(name, root)
    if name in COMPARISONS:
        jobs = of_methods(jobs, [method for method in OF_COMPARISONS if any(job.makes(method) for job in jobs)], [200])
    runs = made(jobs)
    publish(name, runs, root / name, "gcab figure")
    lines = json.loads((root / name / f"{name}.json").read_text())["lines"]
    return {
        "lines": [{key: value for key, value in line.items() if key not in CLOCKS} for line in lines],
        "losses": {job.name: run.records("epoch")[-1]["losses"] for job, run in zip(jobs, runs, strict=True)},
    }


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Everything that is not as it was, in words."""
    said = []
    if [list(line) for line in expected["lines"]] != [list(line) for line in found["lines"]]:
        return [f"the table has other lines or columns: {found['lines']}"]
    for before, now in zip(expected["lines"], found["lines"], strict=True):
        said += [f"{now}: {key} was {before[key]}" for key in now if not close(key, before[key], now[key])]
    if expected["losses"].keys() != found["losses"].keys():
        said.append(f"other runs: {list(found['losses'])}")
    for run, before in expected["losses"].items():
        now = found["losses"].get(run, before)
        if before.keys() != now.keys():
            said.append(f"{run}: the losses are {list(now)}, they were {list(before)}")
        else:
            said += [
                f"{run}: {term} is {now[term]}, it was {value}"
                for term, value in before.items()
                if not math.isclose(now[term], value, rel_tol=LOSS_TOLERANCE, abs_tol=1e-6)
            ]
    return said


def close(column: str, before: Any, now: Any) -> bool:
    """Percentages within some points, divergences within a share; counts, sizes and settings exactly."""
    measured = column.startswith(("ACC_", "Heads alone", "Task identified", "Below", "(")) or column.endswith("%")
    if isinstance(before, float) and isinstance(now, float):
        share = LOSS_TOLERANCE if column.startswith("KL") else 1e-9
        return math.isclose(before, now, rel_tol=share, abs_tol=POINTS if measured else 0.0)
    return bool(before == now)


def refresh() -> None:
    with few_features(), tempfile.TemporaryDirectory() as folder:
        found = {name: numbers_of(name, Path(folder)) for name in RECIPES}
    EXPECTED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    refresh()
    sys.stdout.write(f"{EXPECTED}\n")
