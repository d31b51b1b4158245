"""`gcab demo`: GCAB beside fine-tuning on data that comes with scikit-learn, in about a minute on a laptop."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console

from gcab.config import DEFAULT_PROFILE, resolve
from gcab.errors import GcabError
from gcab.experiment import load_data, run_experiment, run_path
from gcab.report.report import write_report
from gcab.report.tables import accuracy_table
from gcab.runs.folder import RunFolder
from gcab.terminal import RunDisplay

SCENARIO = "digits/5"


def run_demo(root: Path, console: Console, seed: int) -> Path:
    """Train both methods side by side (or pick up finished runs), show the table and write the report."""
    started = time.monotonic()
    console.print(
        "Ten handwritten digits arrive two at a time, as five tasks. After each task its images are gone. Fine-tuning "
        "forgets; GCAB keeps what it learned, storing no image.\n"
    )
    configs = {method: resolve(SCENARIO, method, DEFAULT_PROFILE, seed) for method in ("finetune", "gcab")}
    paths = {method: run_path(root, config) for method, config in configs.items()}
    new = not (paths["finetune"] / "model").exists()
    config = configs["gcab"]
    with (
        training_beside("finetune", root, seed),
        RunDisplay(console, "gcab", config.epochs) as display,
    ):
        command = f"gcab demo --seed {seed}"
        run_experiment(config, load_data(config, None), paths["gcab"], torch.device("cpu"), display, command)
    runs = [RunFolder.open(path) for path in paths.values()]
    if new:
        shown = RunDisplay(console, "finetune", configs["finetune"].epochs)
        for record in runs[0].records("task"):
            shown(record)
    console.print()
    console.print(accuracy_table(runs))
    report = write_report(runs, root / "demo.html")
    console.print(f"\nReport: {report}  ({time.monotonic() - started:.0f} s in all)", highlight=False, soft_wrap=True)
    return report


@contextmanager
def training_beside(method: str, root: Path, seed: int) -> Iterator[None]:
    """Train another method in a process of its own meanwhile, and wait for it at the end."""
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
