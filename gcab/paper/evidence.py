"""What a finished run left behind, as the tables and figures of the paper ask for it."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcab.classifier.distilling_runs import departs
from gcab.config import scenario_preset
from gcab.errors import GcabError
from gcab.flaws import flaws
from gcab.paper.published import TITLES
from gcab.records import FastRecord, GcabSettings, RuntimeRecord
from gcab.report.tables import Group, group_runs, where_tested
from gcab.runs.files import parsed
from gcab.runs.folder import RunFolder
from gcab.training.schedule import TrainingConfig

Record = dict[str, Any]  # column -> value: a line of a table
AGAIN = ", measured again"  # a stored model that decides otherwise than when its run was logged


def finished(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Runs that have a result, and the settings that rows are named by; there must be one."""
    found = [run for run in runs if run.final()]
    if not found:
        raise GcabError("none of these runs is finished: the command that started one continues it.")
    for run in found:
        for flaw in flaws(run.config["options"], GcabSettings, "config.options") if run.method == "gcab" else ():
            raise GcabError(f"{run.path / 'config.json'} is damaged ({flaw}): restore it, or train the run again.")
    return found


def by_scenario(runs: Sequence[RunFolder]) -> dict[str, list[Group]]:
    """Groups of seeds, labelled by what sets them apart within their scenario."""
    names = dict.fromkeys(run.scenario for run in runs)
    return {name: group_runs([run for run in runs if run.scenario == name], elsewhere=runs) for name in names}


def title_of(group: Group) -> str:
    """The label with the method's name as it is printed."""
    method = group.runs[0].method
    return TITLES.get(method, method) + group.label.removeprefix(method)


def teacher_title(group: Group) -> str:
    """The group's title, marked where stored models reach something else than the runs logged."""
    found = [(beside_students(run), run.final()) for run in group.runs]
    again = any(now and then and departs(now, then) for now, then in found)
    return title_of(group) + AGAIN * again


def fast_title(group: Group) -> str:
    """The title of GCAB-Fast when it was distilled from this group."""
    return TITLES["gcab-fast"] + group.label.removeprefix(group.runs[0].method)


def distillations(run: RunFolder) -> dict[float, dict[str, Any]]:
    """Capacity -> what `gcab distill` measured, the smallest first."""
    found = [read_json(path, FastRecord) for path in run.path.glob("fast-*/fast.json")]
    return {figures["options"]["capacity"]: figures for figures in sorted(found, key=_capacity)}


def distilled(group: Group, capacity: float) -> list[dict[str, Any]]:
    """The distillations to one capacity, of the seeds that have it."""
    return [found[capacity] for run in group.runs if capacity in (found := distillations(run))]


def teachers(group: Group) -> list[Mapping[str, Any]]:
    """Results of the finished runs, as tested beside a student where there is one; named by `teacher_title`."""
    return [found for run in group.runs if (found := beside_students(run) or run.final())]


def beside_students(run: RunFolder) -> Mapping[str, Any] | None:
    """The results of a run's stored model when it was distilled, if it was."""
    return next((figures["gcab"] for figures in distillations(run).values()), None)


def timings(run: RunFolder) -> list[dict[str, Any]]:
    """Timings of a run's models, one for each device."""
    return [read_json(path, RuntimeRecord) for path in sorted(run.path.glob("runtime-*.json"))]


def read_json(path: Path, kind: Any) -> dict[str, Any]:
    """A file of ours, which must be of this type."""
    try:
        content: dict[str, Any] = parsed(path.read_bytes())
        if flaw := next(flaws(content, kind), None):
            raise ValueError(flaw)
    except (OSError, ValueError) as error:
        raise GcabError(f"{path} is damaged ({error}): delete it and run the same command again.") from None
    return content


def epochs_of(run: RunFolder) -> int:
    """Epochs of every task."""
    return int(run.config["training"]["epochs"])


def in_epochs(count: int) -> str:
    """A number of epochs in words."""
    return f"{count} epoch{'s' * (count > 1)}"


def full_schedule(scenario: str) -> int:
    """Epochs a task in the paper, or for a data set that it does not have, as `gcab train` has them."""
    return int(scenario_preset(scenario).get("training.epochs", TrainingConfig().epochs))


def reduced(runs: Sequence[RunFolder], whole: int | None = None) -> str:
    """Says how far the schedule was cut, and whether the test images were spared; nothing where neither is so.

    Where the `whole` schedule is not given, it is the scenario's.
    """
    cut = {(epochs_of(run), whole or full_schedule(run.scenario)) for run in runs}
    said = [f"{in_epochs(few)} a task instead of {full}" for few, full in sorted(cut) if few < full]
    whose = "" if len(said) == len(cut) else " of some runs"
    schedule = [f"Reduced schedule{whose}: {', '.join(said)}"] if said else []
    return ". ".join(filter(None, [*schedule, where_tested(runs, "Tested on {}")]))


def accuracies(measured: Sequence[Mapping[str, Any]]) -> Record:
    """ACC_TAG and ACC_TAW over the seeds: means, and sample standard deviations where there are several."""
    columns: Record = {"Seeds": len(measured)}
    for column in ("ACC_TAG", "ACC_TAW"):
        values = [one[column.lower()] for one in measured]
        columns[column] = statistics.fmean(values)
        columns[f"{column} ±"] = statistics.stdev(values) if len(values) > 1 else None
    return columns


def _capacity(figures: Mapping[str, Any]) -> float:
    return float(figures["options"]["capacity"])
