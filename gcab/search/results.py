"""The results of trials: an append-only file with a line for each, and the table made of them."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcab.errors import GcabError
from gcab.flaws import flaws
from gcab.records import Count, TrialRecord
from gcab.report.tables import NOTHING, Table
from gcab.runs.files import parsed, saving
from gcab.runs.folder import final_of
from gcab.search.trials import Search, Trial

FILE = "trials.jsonl"


def finished_trials(search: Search) -> dict[int, TrialRecord]:
    """Number -> result, of this search; a last line without its end was being written when the command was killed."""
    path = search.folder / FILE
    found: dict[int, TrialRecord] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1] if path.exists() else (), start=1):
        try:
            record: Any = parsed(line)
            if flaw := next(flaws(record, TrialRecord), None):
                raise ValueError(flaw)
        except ValueError as error:
            raise GcabError(
                f"line {number} of {path} is damaged ({error}): delete this line, and its trial is looked up again."
            ) from None
        if record["search"] == search.key:
            found[record["trial"]] = record
    return found


def record_trial(search: Search, trial: Trial, diverged: str) -> TrialRecord:
    """Append the result of a trial, once its run is on disk."""
    final: Mapping[str, Any] = {} if diverged else final_of(trial.path)
    record: TrialRecord = {
        "search": search.key,
        "trial": Count(trial.number),
        "settings": trial.settings,
        "run": trial.path.name,
        "acc_tag": final.get("acc_tag"),
        "acc_taw": final.get("acc_taw"),
        "seconds": final.get("seconds"),
        "problem": diverged,
    }
    append(search.folder / FILE, record)
    return record


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Append a line, after truncating an incomplete one."""
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def best_of(results: Sequence[TrialRecord]) -> TrialRecord | None:
    """The highest ACC_TAG; ties go to the first, so that the default is preferred."""
    found = [result for result in sorted(results, key=lambda result: result["trial"]) if result["acc_tag"] is not None]
    return max(found, key=lambda result: result["acc_tag"] or 0.0, default=None)


def results_table(search: Search, results: Sequence[TrialRecord]) -> Table:
    """A row for each trial."""
    best = best_of(results)
    rows = []
    for result in sorted(results, key=lambda result: result["trial"]):
        name = f"{result['trial']}{' default' * (result['trial'] == 1)}{' best' * (result is best)}"
        numbers = [NOTHING if result[key] is None else f"{result[key]:.2f}" for key in ("acc_tag", "acc_taw")]
        rows.append([name, *(f"{result['settings'][key]}" for key in search.ranges), *numbers])
    share = search.base.scenario.validation
    note = f"On {100 * share:g} % of the training images, which were held out; the test images were not read."
    title = f"Trials of {search.base.method} on {search.base.scenario.name}, seed {search.base.seed}"
    return Table(title, ["Trial", *search.ranges, "ACC_TAG", "ACC_TAW"], rows, note)


def flags_of(settings: Mapping[str, Any]) -> str:
    """Settings as flags of `gcab train`."""
    return " ".join(f"--{key} {value}" for key, value in settings.items())
