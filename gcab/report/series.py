"""Runs as numbers that a figure can draw: by group, by task, by part of a method, by epoch."""

from collections.abc import Sequence
from typing import Any, Literal

from gcab.evaluation.metrics import Results, task_records
from gcab.report.plotting import looks
from gcab.report.tables import Group, group_runs, results_of
from gcab.runs.folder import RunFolder


def groups_with_tasks(runs: Sequence[RunFolder]) -> list[Group]:
    """Groups in which at least one run has learned a task."""
    return [group for group in group_runs(runs) if any(run.records("task") for run in group.runs)]


def looks_of_groups(runs: Sequence[RunFolder]) -> dict[str, tuple[str, str]]:
    """The colour and marker of every group, the same in figures that show all groups and in those that show some."""
    groups = group_runs(runs)
    return dict(zip([group.label for group in groups], looks([group.method for group in groups]), strict=True))


def most_tasks(groups: Sequence[Group]) -> int:
    return max(len(group.runs[0].tasks) for group in groups)


def furthest(group: Group) -> list[Results]:
    """The results of the seeds that have come furthest, which are those that can be averaged."""
    results = [results_of(run) for run in group.runs]
    rows = max(len(result.tag) for result in results)
    return [result for result in results if len(result.tag) == rows]


def task_values(group: Group, key: Literal["capacity", "drift", "views"]) -> list[list[Any]]:
    """One list per seed of a task record's entry, without tasks and seeds where it is empty."""
    values = [[record[key] for record in task_records(run.records("task")) if record.get(key)] for run in group.runs]
    return [seed for seed in values if seed]


def part_records(run: RunFolder, name: str) -> list[dict[str, Any]]:
    """The records of a run's tasks as a part of its method alone would have them."""
    records = task_records(run.records("task"))
    return [{**record, **record["views"][name]} for record in records if name in record.get("views", {})]


def loss_curves(run: RunFolder) -> dict[str, tuple[list[float], list[float]]]:
    """Per loss term, where in the stream of tasks each value was taken (0..T) and the value.

    An epoch of task t lies between the end of the task learned before it and t, so joint training, which logs all its
    epochs under the last task, spreads over the whole axis.
    """
    epochs = {(record["task"], record["epoch"]): record for record in run.records("epoch")}
    learned = sorted({task for task, _ in epochs})
    begin = dict(zip(learned, [0, *learned], strict=False))
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for (task, epoch), record in sorted(epochs.items()):
        for term, value in record["losses"].items():
            where, values = curves.setdefault(term, ([], []))
            where.append(begin[task] + (task - begin[task]) * epoch / record["epochs"])
            values.append(or_nan(value))
    return curves


def or_nan(value: float | None) -> float:
    """NaN for null, which a log has where training diverged."""
    return float("nan") if value is None else value
