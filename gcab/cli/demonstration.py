"""`gcab demo`: GCAB and its baselines, on data that comes with scikit-learn, in about a minute on a laptop."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console

from gcab.config import resolve
from gcab.errors import GcabError
from gcab.profiles import DEFAULT_PROFILE
from gcab.report.report import write_report
from gcab.report.tables import accuracy_table
from gcab.runs.folder import RunFolder
from gcab.runs.run import load_data, run_path, train_run
from gcab.terminal import RunDisplay

SCENARIO = "digits/5"
BASELINES = ("finetune", "untrained", "eye")
METHODS = (*BASELINES, "gcab")


def run_demo(root: Path, console: Console, seed: int) -> Path:
    """Train all methods (or pick up finished runs), the slow ones side by side; show the table and write the report."""
    started, command = time.monotonic(), f"gcab demo --seed {seed}"
    console.print(
        "Ten handwritten digits arrive two at a time, as five tasks; after each task its images are gone, and none is "
        "stored. The rows are fine-tuning (finetune), which forgets; an encoder that never learns (untrained) and a "
        "fixed set of filters (eye), which have nothing to forget; and gcab, which learns and remembers.\n"
    )
    configs = {method: resolve(SCENARIO, method, DEFAULT_PROFILE, seed) for method in METHODS}
    paths = {method: run_path(root, config) for method, config in configs.items()}
    beside, *here = METHODS
    new = not (paths[beside] / "model").exists()
    with training_beside(beside, root, seed):
        for method in here:
            config = configs[method]
            with RunDisplay(console, method, config.epochs) as display:
                train_run(config, load_data(config, None), paths[method], torch.device("cpu"), display, command)
    runs = {method: RunFolder.open(path) for method, path in paths.items()}
    if new:
        shown = RunDisplay(console, beside, configs[beside].epochs)
        for record in runs[beside].records("task"):
            shown(dict(record))
    console.print()
    console.print(accuracy_table([*runs.values()]))
    console.print(verdict(runs), highlight=False, soft_wrap=True)
    report = write_report([*runs.values()], root / "demo.html")
    console.print(f"\nReport: {report}  ({time.monotonic() - started:.0f} s in all)", highlight=False, soft_wrap=True)
    return report


def verdict(runs: Mapping[str, RunFolder]) -> str:
    """Whether gcab is worth its training, over all classes and without being told the task."""
    reached = {method: final["acc_tag"] for method, run in runs.items() if (final := run.final())}
    best = max(BASELINES, key=reached.__getitem__)
    gap = reached["gcab"] - reached[best]
    where = "level with" if abs(gap) < 0.05 else f"{abs(gap):.1f} points {'below' if gap < 0 else 'above'}"
    return f"gcab is {where} the best baseline, {best}."


@contextmanager
def training_beside(method: str, root: Path, seed: int) -> Iterator[None]:
    """Context manager that trains another method in a subprocess and waits for it at the end."""
    command = ["train", SCENARIO, "--method", method, "--seed", str(seed), "--runs", str(root), "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gcab", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield
        _, problem = process.communicate()
    finally:
        process.kill()
    if process.returncode:
        raise GcabError(f"training {method} failed: {problem.strip()}")
