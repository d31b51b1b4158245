"""`gcab demo`: GCAB beside fine-tuning on data that comes with scikit-learn, in about a minute on a laptop."""

import time
from pathlib import Path

import torch
from rich.console import Console

from gcab.config import DEFAULT_PROFILE, resolve
from gcab.experiment import load_data, run_experiment, run_path
from gcab.report.report import write_report
from gcab.report.tables import accuracy_table
from gcab.runs.folder import RunFolder
from gcab.terminal import RunDisplay

SCENARIO = "digits/5"


def run_demo(root: Path, console: Console, seed: int) -> Path:
    """Train both methods (or pick up finished runs), show the table and write the report."""
    started = time.monotonic()
    console.print(
        "Ten handwritten digits arrive two at a time, as five tasks. After each task its images are gone. Fine-tuning "
        "forgets; GCAB keeps what it learned, storing no image.\n"
    )
    runs = []
    for method in ("finetune", "gcab"):
        config = resolve(SCENARIO, method, DEFAULT_PROFILE, seed)
        data, path = load_data(config, None), run_path(root, config)
        with RunDisplay(console, method, config.scenario.tasks, config.training.epochs) as display:
            run_experiment(config, data, path, torch.device("cpu"), display, f"gcab demo --seed {seed}")
        runs.append(RunFolder.open(path))
    console.print()
    console.print(accuracy_table(runs).rich())
    report = write_report(runs, root / "demo.html")
    console.print(f"\nReport: {report}  ({time.monotonic() - started:.0f} s in all)", highlight=False, soft_wrap=True)
    return report
