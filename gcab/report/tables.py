"""Runs side by side, in numbers: the same tables for the terminal and for the report."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gcab.evaluation.metrics import METRICS, Results, describe, results_from_records, task_records
from gcab.profiles import DEFAULT_PROFILE
from gcab.report.layout import bands
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod
    from rich.table import Table as RichTable

NOTHING = "–"
MEGABYTE = 1_000_000
WIDEST = 8  # columns
LABEL_SETTINGS = 3  # more would not fit a legend
TOLD_IN_ANY_CASE = ("scenario.name", "training.epochs")

Settings = Mapping[str, Any]  # dotted key -> value


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; the first column names the row, the others are numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RichTable]":
        """The table for a terminal, fitted to its width."""
        from rich.markup import escape as escape_markup
        from rich.table import Table as RichTable

        lines = self._lines()
        found = bands(lines, options.max_width)
        if len(found) > 1:  # turning did not make it fit
            lines = [self.columns, *self.rows]
            found = bands(lines, options.max_width)
        for band in found:
            title, note = self.title if band is found[0] else "", self.note if band is found[-1] else ""
            table = RichTable(title=escape_markup(title), caption=escape_markup(note), caption_justify="left")
            for column, width in band.items():
                justify: JustifyMethod = "right" if column else "left"
                table.add_column(escape_markup(lines[0][column]), justify=justify, overflow="fold", width=width)
            for row in lines[1:]:
                table.add_row(*(escape_markup(row[column]) for column in band))
            yield table

    def html(self) -> str:
        """The table for the report; every text is escaped."""
        columns, *rows = self._lines()
        head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
        body = "".join(
            f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>\n'
            for first, *rest in rows
        )
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return (
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n{note}'
        )

    def _lines(self) -> list[list[str]]:
        """The head and the rows; a table wider than long is turned on its side, where it fits a screen."""
        lines = [self.columns, *self.rows]
        if len(self.columns) <= max(WIDEST, len(lines)):
            return lines
        return [list(column) for column in zip(*lines, strict=True)]


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only: one line in a table, one curve in a figure."""

    label: str
    runs: list[RunFolder]  # by seed

    @property
    def method(self) -> str:
        """The method all runs of the group share."""
        return self.runs[0].method

    @cached_property
    def finals(self) -> list[dict[str, Any]]:
        """The final records of the runs that finished."""
        return [final for run in self.runs if (final := run.final())]

    @property
    def last_record(self) -> Mapping[str, Any] | None:
        """What the group's cost is read from: a final record, or the newest task of a run still under way."""
        tasks = [record for run in self.runs for record in task_records(run.records("task"))]
        return next(iter(self.finals), max(tasks, key=lambda record: record["task"], default=None))

    def values(self, metric: str) -> list[float]:
        """One value per finished run, none where the metric is undefined."""
        return [final[metric] for final in self.finals if final.get(metric) is not None]

    def mean(self, metric: str) -> float | None:
        """The mean over the seeds, if there is anything to average."""
        values = self.values(metric)
        return statistics.fmean(values) if values else None


def results_of(run: RunFolder) -> Results:
    """The accuracy matrices of a run, as far as it has come."""
    return results_from_records(run.records("task"))


def group_runs(runs: Sequence[RunFolder], elsewhere: Sequence[RunFolder] = ()) -> list[Group]:
    """Gather seeds of the same settings and name each group by its method and what sets it apart from the others.

    Where runs elsewhere, as in another panel of a figure, have several profiles, it is named by its own here, too.
    """
    members: dict[tuple[str, int], list[RunFolder]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for run in runs:  # one seed that was run again is no second seed
        members.setdefault((run.group, seen[run.group, run.seed]), []).append(run)
        seen[run.group, run.seed] += 1
    groups = [sorted(group, key=lambda run: run.seed) for group in members.values()]
    settings = [dict(flat_settings(group[0].config)) for group in groups]
    others = [run.config for run in elsewhere]
    labels = [_label(own, settings, others) for own in settings]
    labels = [f"{label}, run again" if again else label for label, (_, again) in zip(labels, members, strict=True)]
    for index, group in enumerate(groups):
        if labels.count(labels[index]) > 1:  # settings that only one of them knows, as after a change of version
            labels[index] += f" [{group[0].group.rpartition('/')[2]}]"
    return [Group(label, group) for label, group in zip(labels, groups, strict=True)]


def is_pretrained(run: RunFolder) -> bool:
    """Whether its encoder has seen other images than the run's own, so that it is no equal of one from scratch."""
    return run.config.get("encoder", {}).get("kind") == "pretrained"


def comparisons(runs: Sequence[RunFolder]) -> list[Table]:
    """What was learned from scratch, and apart from it what began with a pretrained encoder."""
    parts = [[run for run in runs if is_pretrained(run) == pretrained] for pretrained in (False, True)]
    scratch, pretrained = map(compare_table, parts)
    apart = "Encoders that were trained elsewhere, on other images: not to be compared with methods from scratch. "
    labelled = replace(pretrained, title="Comparison, pretrained encoders", note=apart + pretrained.note)
    return [table for table, part in ((scratch, parts[0]), (labelled, parts[1])) if part] or [scratch]


def compare_table(runs: Sequence[RunFolder]) -> Table:
    """The best method first: every metric as mean ± standard deviation over seeds; unfinished runs named at the end."""
    groups = group_runs(runs)
    metrics = [name for name in METRICS if any(group.values(name) for group in groups)]
    finished = sorted((group for group in groups if group.finals), key=_acc_tag, reverse=True)
    rows = [
        [group.label, str(len(group.finals)), *(_mean_and_deviation(group.values(name)) for name in metrics)]
        for group in finished
    ]
    for group in groups:
        for run in group.runs:
            if not run.final():
                label = f"{group.label}, seed {run.seed}: unfinished, {progress(run)}"
                rows.append([label, NOTHING, *(NOTHING for _ in metrics)])
    columns = ["Method", "Seeds", *(describe(name).title for name in metrics)]
    note = "Per cent or points; mean ± sample standard deviation over seeds, best ACC_TAG first." + where_tested(runs)
    return Table("Comparison", columns, rows, note)


def accuracy_table(runs: Sequence[RunFolder]) -> Table:
    """Where the accuracy comes from: each task after the last one learned, one line per run."""
    tasks = max((len(run.tasks) for run in runs), default=0)
    rows = []
    for group in group_runs(runs):
        for run in group.runs:
            results = results_of(run)
            tag, taw = (results.tag[-1], results.taw[-1]) if results.tag else ([], [])
            cells = [f"{agnostic:.1f} / {aware:.1f}" for agnostic, aware in zip(tag, taw, strict=True)]
            total = [f"{METRICS[name](results):.1f}" if tag else NOTHING for name in ("acc_tag", "acc_taw")]
            rows.append([run_label(group, run), *cells, *[NOTHING] * (tasks - len(cells)), " / ".join(total)])
    columns = ["Run", *(f"Task {task}" for task in range(1, tasks + 1)), "All"]
    note = "Per cent after the last task: task-agnostic / task-aware." + where_tested(runs)
    return Table("Accuracy per task", columns, rows, note)


def where_tested(runs: Sequence[RunFolder], sentence: str = " On {}.") -> str:
    """A sentence for runs that were not tested on the test images; nothing where all were."""
    held_out = [run.held_out for run in runs]
    images = f"held-out training images{'' if all(held_out) else ' in some runs'}"
    return sentence.format(images) if any(held_out) else ""


def memory_table(runs: Sequence[RunFolder]) -> Table:
    """What each method keeps between tasks, as in the paper's memory table: accuracy beside its price."""
    rows = []
    for group in group_runs(runs):
        if last := group.last_record:
            sizes = [last["bytes"].get(part, 0) / MEGABYTE for part in ("model", "images", "prototypes")]
            megabytes = [f"{size:.2f}" for size in [*sizes, sum(sizes)]]
            accuracy = _mean_and_deviation(group.values("acc_tag"))
            rows.append([group.label, f"{last['parameters'] / 1e6:.2f}", *megabytes, accuracy])
    columns = ["Method", "Parameters (M)", "Model (MB)", "Images (MB)", "Prototypes (MB)", "Total (MB)"]
    return Table("Memory", [*columns, describe("acc_tag").title], rows, "MB = 1 000 000 bytes, kept between tasks.")


def progress(run: RunFolder) -> str:
    """How far an unfinished run has come, in words."""
    done = len(task_records(run.records("task")))
    return f"{done} of {len(run.tasks)} tasks learned"


def run_label(group: Group, run: RunFolder) -> str:
    """Name one run of a group; the seed matters only where there are several."""
    label = f"{group.label}, seed {run.seed}" if len(group.runs) > 1 else group.label
    return label if run.final() else f"{label} (unfinished)"


def _acc_tag(group: Group) -> float:
    mean = group.mean("acc_tag")
    return float("-inf") if mean is None else mean


def _mean_and_deviation(values: Sequence[float]) -> str:
    if not values:
        return NOTHING
    mean = f"{statistics.fmean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def flat_settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten a configuration to dotted keys, without the seed."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{key}.")
        elif prefix or key != "seed":
            yield f"{prefix}{key}", value


def _label(own: Settings, everyone: Sequence[Settings], elsewhere: Sequence[Settings]) -> str:
    """A setting is worth showing where those of the same method and profile disagree.

    Another method's options say nothing here, and another profile stands for all it changes; only what was trained on
    and for how long is told in any case.
    """
    kin = (own["method"], own.get("profile"))
    peers = [other for other in everyone if (other["method"], other.get("profile")) == kin]
    profiles = {other.get("profile") for other in (*everyone, *elsewhere) if other["method"] == own["method"]}
    telling = [str(own["profile"])] if profiles != {DEFAULT_PROFILE} else []
    for key, value in own.items():
        rivals = everyone if key in TOLD_IN_ANY_CASE else peers
        if any(key in other and other[key] != value for other in rivals):
            telling.append(f"{key.removesuffix('.name').rpartition('.')[2]}={value}")
    name = str(own["method"])
    if own.get("encoder.kind") == "pretrained":
        name += f" on {PurePath(own['encoder.weights']).name}"
    if not telling:
        return name
    more = [f"{len(telling) - LABEL_SETTINGS} more"] if len(telling) > LABEL_SETTINGS else []
    return f"{name} ({', '.join(telling[:LABEL_SETTINGS] + more)})"
