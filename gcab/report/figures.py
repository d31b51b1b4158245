"""Runs as pictures: one function per figure, all listed in `FIGURES`.

A figure function takes the runs and returns a figure, or None where the runs do not hold the data it needs.
"""

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gcab.evaluation.metrics import (
    incremental_tag,
    incremental_taw,
    results_from_records,
    task_of_class,
)
from gcab.report.embedding import embedding
from gcab.report.plotting import (
    PANEL_WIDTH,
    STYLE,
    every,
    heat_map,
    legend_below,
    mean_curve,
    panels,
    row_height,
    save,
    style_key,
    task_axis,
)
from gcab.report.series import (
    furthest,
    groups_with_tasks,
    looks_of_groups,
    loss_curves,
    most_tasks,
    or_nan,
    part_records,
    task_values,
)
from gcab.report.tables import group_runs, results_of
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG_SCALE_FROM = 30  # ratio of the largest to the smallest loss


class FigureEntry(NamedTuple):
    """A figure as the report presents it."""

    title: str
    caption: str
    function: "Callable[[Sequence[RunFolder]], Figure | None]"


def accuracy(runs: Sequence[RunFolder]) -> "Figure | None":
    """ACC_TAG and ACC_TAW after every task, which shows how fast a method declines, not only where it ends."""
    groups = groups_with_tasks(runs)
    if not groups:
        return None
    look = looks_of_groups(runs)
    figure, (agnostic, aware) = panels(1, 2, height=4.2)
    for group in groups:
        colour, marker = look[group.label]
        results = [results for run in group.runs if (results := results_of(run)).tag]
        for axes, curve, line in ((agnostic, incremental_tag, "-"), (aware, incremental_taw, "--")):
            curves = [curve(result) for result in results]
            if results[0].joint:
                axes.axhline(float(np.mean(curves)), color=colour, linestyle=line, linewidth=1.5, label=group.label)
            else:
                mean_curve(axes, curves, group.label, colour, marker, line)
    for axes, title in ((agnostic, "Task-agnostic (ACC_TAG)"), (aware, "Task-aware (ACC_TAW)")):
        task_axis(axes, 1, most_tasks(groups))
        axes.set_title(title)
        axes.set_ylim(0, 102)
    agnostic.set_ylabel("accuracy, %")
    legend_below(figure)
    return figure


def matrices(runs: Sequence[RunFolder]) -> "Figure | None":
    """Every accuracy R[t][s] of every method: a column shows how one task fares as others follow."""
    groups = groups_with_tasks(runs)
    if not groups:
        return None
    results = [furthest(group) for group in groups]
    rows = [max(len(same[0].tag), 2) for same in results]
    heights = [row_height(count) * count + 1.1 for count in rows]
    figure, grid = panels(len(groups), 2, height=sum(heights), ratios=heights)
    for index, (group, same) in enumerate(zip(groups, results, strict=True)):
        lengths = [len(row) for row in same[0].tag]
        seeds = f", mean of {len(same)} seeds" if len(same) > 1 else ""
        for axes, kind in zip(grid[2 * index : 2 * index + 2], ("tag", "taw"), strict=True):
            values = np.full((len(same), len(lengths), lengths[-1]), np.nan)
            for seed, row in np.ndindex(len(same), len(lengths)):
                values[seed, row, : lengths[row]] = getattr(same[seed], kind)[row]
            heat_map(axes, values.mean(axis=0), lengths, f"{group.label}, {kind.upper()}{seeds}")
            axes.set_xlabel("accuracy on task")
            axes.set_ylabel("after task")
    return figure


def capacity(runs: Sequence[RunFolder]) -> "Figure | None":
    """How much of the gates the tasks have taken, as in the paper's capacity figure: what is left for later tasks."""
    groups = [group for group in groups_with_tasks(runs) if task_values(group, "capacity")]
    if not groups:
        return None
    look = looks_of_groups(runs)
    figure, (axes,) = panels(1, 1, height=4.2, width=1.5 * PANEL_WIDTH)
    gates = dict(zip(task_values(groups[0], "capacity")[0][0], ("--", ":"), strict=False))
    for group in groups:
        colour, marker = look[group.label]
        shares = task_values(group, "capacity")
        for gate, line in gates.items():
            mean_curve(axes, [[100 * share[gate] for share in run] for run in shares], "_", colour, ".", line)
        means = [[100 * float(np.mean([*share.values()])) for share in run] for run in shares]
        mean_curve(axes, means, group.label, colour, marker)
    for meaning, line in ({"mean of the gates": "-"} | {f"{gate} gate": line for gate, line in gates.items()}).items():
        style_key(axes, line, meaning)
    task_axis(axes, 1, most_tasks(groups))
    axes.set_ylim(0, 103)
    axes.set_ylabel("gate units in use, %")
    legend_below(figure)
    return figure


def losses(runs: Sequence[RunFolder]) -> "Figure | None":
    """Each term of the loss by itself: which one drives the training, and whether it had converged at a task's end."""
    groups = [group for group in group_runs(runs) if any(run.records("epoch") for run in group.runs)]
    curves = [[loss_curves(run) for run in group.runs] for group in groups]
    terms = list(dict.fromkeys(term for seeds in curves for seed in seeds for term in seed))
    if not terms:
        return None
    look = looks_of_groups(runs)
    rows = -(-len(terms) // 2)
    figure, grid = panels(rows, min(len(terms), 2), height=3.3 * rows, width=PANEL_WIDTH * (1 + (len(terms) == 1)))
    for axes, term in zip(grid, terms, strict=False):
        for group, seeds in zip(groups, curves, strict=True):
            for index, seed in enumerate(seeds):
                # Every group is drawn in every panel, if with no points, so that one legend names them all.
                where, values = seed.get(term, ([], []))
                axes.plot(where, values, color=look[group.label][0], linewidth=1.3, label="_" if index else group.label)
        drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()])
        drawn = drawn[np.isfinite(drawn)]
        if drawn.size and drawn.min() > 0 and drawn.max() > LOG_SCALE_FROM * drawn.min():
            axes.set_yscale("log")
        last = most_tasks(groups)
        task_axis(axes, 0, last)
        axes.set_xticks([task - 0.5 for task in every(last)], [str(task) for task in every(last)])
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")
        for boundary in range(1, last):
            axes.axvline(boundary, color="#C8C8C8", linewidth=1, zorder=0)
        axes.set_title(term)
        axes.set_xlabel("task being learned")
    for axes in grid[len(terms) :]:
        axes.set_axis_off()
    legend_below(figure)
    return figure


def drift(runs: Sequence[RunFolder]) -> "Figure | None":
    """How far old features have moved, and how much of it the compensation undoes."""
    groups = [group for group in groups_with_tasks(runs) if task_values(group, "drift")]
    if not groups:
        return None
    look = looks_of_groups(runs)
    figure, (axes,) = panels(1, 1, height=4.2, width=1.5 * PANEL_WIDTH)
    for group in groups:
        colour, marker = look[group.label]
        moved = task_values(group, "drift")
        for kind, line, label in (("compensated", "-", group.label), ("raw", "--", "_")):
            curves = [[float(np.mean([or_nan(old[kind]) for old in after])) for after in run] for run in moved]
            mean_curve(axes, curves, label, colour, marker, line, start=2)
    style_key(axes, "--", "as is")
    style_key(axes, "-", "compensated")
    task_axis(axes, 2, most_tasks(groups))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("relative feature drift")
    legend_below(figure)
    return figure


def parts(runs: Sequence[RunFolder]) -> "Figure | None":
    """What parts of a method would reach alone, beside the whole: which of them does not know the task."""
    groups = [group for group in groups_with_tasks(runs) if task_values(group, "views")]
    if not groups:
        return None
    look = looks_of_groups(runs)
    names = dict.fromkeys(
        name for group in groups for run in task_values(group, "views") for views in run for name in views
    )
    lines = dict(zip(names, cycle(("--", ":", "-."))))
    figure, axes_of_kinds = panels(1, 2, height=4.2)
    for axes, kind, curve in zip(axes_of_kinds, ("tag", "taw"), (incremental_tag, incremental_taw), strict=True):
        for group in groups:
            colour, marker = look[group.label]
            whole = [curve(results_of(run)) for run in group.runs if run.records("task")]
            mean_curve(axes, whole, group.label, colour, marker)
            for name, line in lines.items():
                stories = [part_records(run, name) for run in group.runs]
                curves = [curve(results_from_records(story)) for story in stories if story]
                if curves:
                    start = next(story[0]["task"] for story in stories if story)
                    mean_curve(axes, curves, "_", colour, "", line, start)
        for name, line in lines.items():
            style_key(axes, line, name)
        task_axis(axes, 1, most_tasks(groups))
        axes.set_title({"tag": "Task-agnostic (ACC_TAG)", "taw": "Task-aware (ACC_TAW)"}[kind])
        axes.set_ylim(0, 102)
    axes_of_kinds[0].set_ylabel("accuracy, %")
    legend_below(figure)
    return figure


def confusion(runs: Sequence[RunFolder]) -> "Figure | None":
    """Which task wins the images of which: a model that forgets answers with the newest task."""
    shown = []
    for group in group_runs(runs):
        names = group.runs[0].arrays_names("task-")
        arrays = group.runs[0].load_arrays(max(names)) if names else None
        if arrays is not None:
            task = task_of_class([len(classes) for classes in group.runs[0].tasks])
            pairs = task[arrays["labels"]], task[arrays["logits"].argmax(axis=1)]
            shown.append((group, pairs, int(task[arrays["logits"].shape[1] - 1]) + 1))
    if not shown:
        return None
    rows, most = -(-len(shown) // 2), max(learned for *_, learned in shown)
    figure, grid = panels(rows, 2, height=rows * (row_height(most) * most + 1.4))
    for (group, pairs, learned), axes in zip(shown, grid, strict=False):
        counts = np.zeros((learned, learned))
        np.add.at(counts, pairs, 1)
        shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        heat_map(axes, shares, range(1, learned + 1), group.label)
        axes.set_xlabel("predicted task")
        axes.set_ylabel("true task")
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    return figure


FIGURES: dict[str, FigureEntry] = {
    "accuracy": FigureEntry(
        "Accuracy over tasks",
        "Accuracy on everything learned so far, after each task. Left: the model chooses among all classes seen. "
        "Right: it is told the task. Joint training, which sees all data at once, is the horizontal line. Bands: one "
        "standard deviation over seeds.",
        accuracy,
    ),
    "matrices": FigureEntry(
        "Accuracy matrices",
        "Per cent correct on each task (column) after each task learned (row), task-agnostic left, task-aware right. "
        "Read down a column to see a task being forgotten or kept.",
        matrices,
    ),
    "confusion": FigureEntry(
        "Confusion between tasks",
        "Where the images of a task (row) go: the per cent that are given a class of each task (column) after the last "
        "task, first seed. A full last column is a model that answers with its newest classes.",
        confusion,
    ),
    "parts": FigureEntry(
        "What each part knows",
        "Solid: the whole method. Other lines: what its parts would reach if they decided alone. Left without the "
        "task, right with it: a part that is good on the right and poor on the left does not know the task.",
        parts,
    ),
    "capacity": FigureEntry(
        "Capacity",
        "Share of the gates' units used by the tasks so far. What is left is free for tasks to come.",
        capacity,
    ),
    "embedding": FigureEntry(
        "What happens to task 1",
        "The decoder's embedding of the same task-1 test images, right after task 1 and after later tasks, as is and "
        "with drift compensation (first seed). One t-SNE over all panels of a run, so positions can be compared; "
        "colour is the class.",
        embedding,
    ),
    "drift": FigureEntry(
        "Feature drift",
        "How far the features of earlier tasks' images have moved from where they were when learned, relative to their "
        "size, averaged over earlier tasks. Dashed: as is. Solid: after compensation.",
        drift,
    ),
    "losses": FigureEntry(
        "Training losses",
        "Each term of the loss over training, one line per run. Vertical lines mark the start of a new task.",
        losses,
    ),
}


def draw(name: str, runs: Sequence[RunFolder]) -> "Figure | None":
    """One figure of the table in the common style."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        return FIGURES[name].function(runs)


def save_figures(runs: Sequence[RunFolder], folder: Path) -> list[Path]:
    """Every figure the runs have data for, as PNG for slides and SVG for print."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in FIGURES:
        if figure := draw(name, runs):
            for kind in ("png", "svg"):
                written.append(folder / f"{name}.{kind}")
                save(figure, written[-1], kind)
    return written
