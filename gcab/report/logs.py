"""Reading runs, whose logs are validated before tables and figures are made of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcab.errors import GcabError
from gcab.evaluation.metrics import METRICS
from gcab.flaws import flaws, line_flaws
from gcab.records import RunRecord
from gcab.runs.folder import RunFolder, find_runs


def read_runs(paths: Sequence[Path]) -> list[RunFolder]:
    """Every run that is, lies below, or is listed below one of `paths`, with a log that can be shown."""
    runs = find_runs(paths)
    for run in runs:
        check_log(run)
    return runs


def check_log(run: RunFolder) -> None:
    """Raise an error for the first flaw of a log, with its place."""
    advice = f"restore it, or delete {run.path} and train the run again."
    for flaw in flaws(run.document, RunRecord):
        raise GcabError(f"{run.path / 'config.json'} is damaged ({flaw}): {advice}")
    learned: list[Mapping[str, Any]] = []
    for number, record in enumerate(run.records(), start=1):
        for flaw in line_flaws(record, run.tasks, learned, [*METRICS]):
            raise GcabError(f"line {number} of {run.metrics} is damaged ({flaw}): {advice}")
        if record["kind"] == "task":
            learned.append(record)
