"""The paper's embedding figure: what becomes of task 1's images in the decoder as later tasks are learned.

(a) after task 1; later (b) without PFR in training, (c) with PFR, (d) with PFR and drift compensation.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gcab.errors import GcabError
from gcab.paper.evidence import Record
from gcab.report.embedding import CLASSES, evenly, projected, scatter
from gcab.report.plotting import legend_below, panels
from gcab.report.tables import flat_settings
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Arrays = dict[str, NDArray[Any]]
Pair = tuple[RunFolder, RunFolder]  # without PFR, with it

COMPARED = ("options.drift", "options.compensation")
COLUMNS = ("(a) after task 1", "(b) without PFR", "(c) with PFR", "(d) with PFR, compensated")
SHOWN_TASKS = (2, 3, 4, 5)  # and the last: appendix "Additional Embedding Visualizations"
FILES = tuple(f"predictions/embedding-{task}.npz" for task in ("01", *map("{:02d}".format, SHOWN_TASKS), "{last:02d}"))
POINTS = 150  # a panel


def records(runs: Sequence[RunFolder]) -> list[Record]:
    """The per cent of task 1's images nearest to where the mean of their class was after task 1."""
    lines = []
    for scenario, pair in pairs(runs).items():
        first = firsts(pair)
        start = {"Scenario": scenario, "After task": 1, COLUMNS[0]: kept(first[1]["raw"], first[1])}
        lines.append({**dict.fromkeys([*start, *COLUMNS]), **start})
        for task in tasks_of(pair):
            shown = columns(pair, task)
            shares = [kept(points, first[index > 0]) for index, points in enumerate(shown[1:])]
            line = {"Scenario": scenario, "After task": task, COLUMNS[0]: None}
            lines.append({**line, **dict(zip(COLUMNS[1:], shares, strict=True))})
    return lines


def pairs(runs: Sequence[RunFolder]) -> dict[str, Pair]:
    """Scenario -> a run without PFR and one with it that differ in nothing else, of the first seed that has both."""
    usable = [run for run in runs if run.method == "gcab" and run.arrays_names("embedding-")]
    found: dict[str, list[Pair]] = {}
    for pair in product(usable, usable):
        drifts = [run.config["options"]["drift"] for run in pair]
        if drifts == ["none", "pfr"] and len({(run.scenario, run.seed) for run in pair}) == 1:
            found.setdefault(pair[0].scenario, []).append(pair)
    return {scenario: comparable(sorted(candidates, key=seed_of)) for scenario, candidates in found.items()}


def paired(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """The runs that are compared, and no others."""
    return [run for pair in pairs(runs).values() for run in pair]


def doubled(runs: Sequence[RunFolder]) -> set[Path]:
    """Of runs without PFR, the points after task 1 that the run with it has, too: drift begins with task 2."""
    files = [tuple(run.path / FILES[0] for run in pair) for pair in pairs(runs).values()]
    return {one for one, other in files if one.exists() and one.read_bytes() == other.read_bytes()}


def firsts(pair: Pair) -> tuple[Arrays, Arrays]:
    """Both runs after task 1; where they are the same, a published pair has them once."""
    with_pfr = load(pair[1], 1)
    return pair[0].embedding(1) or with_pfr, with_pfr


def seed_of(pair: Pair) -> int:
    return pair[0].seed


def comparable(candidates: Sequence[Pair]) -> Pair:
    """The first pair that differs in nothing but what the figure is about; there must be one."""
    differences = [difference(pair) for pair in candidates]
    if all(differences):
        without, with_pfr = (run.path for run in candidates[0])
        raise GcabError(
            f"the figure embedding cannot compare {without} with {with_pfr}, which differ in {differences[0]}: give "
            "two runs that differ in options.drift and options.compensation alone."
        )
    return candidates[differences.index("")]


def difference(pair: Pair) -> str:
    """The first setting that differs and is not what the figure is about, with both values; nothing where none does."""
    without, with_pfr = (dict(flat_settings(run.config)) for run in pair)
    for key in dict.fromkeys([*without, *with_pfr]):
        if key not in COMPARED and without.get(key) != with_pfr.get(key):
            return f"{key} ({without.get(key)} and {with_pfr.get(key)})"
    return ""


def tasks_of(pair: Pair) -> list[int]:
    """After which tasks the paper looks back, as far as there are so many."""
    last = len(pair[1].tasks)
    return sorted({task for task in (*SHOWN_TASKS, last) if 1 < task <= last})


def load(run: RunFolder, task: int) -> Arrays:
    arrays = run.embedding(task)
    if arrays is None:
        raise GcabError(f"the run {run.path} has lost its embedding after task {task}: restore it, or train it again.")
    return arrays


def columns(pair: Pair, task: int) -> list[NDArray[Any]]:
    """The points (n, D) of the four columns."""
    without, with_pfr = (load(run, task) for run in pair)
    return [load(pair[1], 1)["raw"], without["raw"], with_pfr["raw"], with_pfr["compensated"]]


def kept(points: NDArray[Any], first: Arrays) -> float:
    """Per cent of points (n, D) nearest to the mean of their own class after task 1."""
    labels = first["labels"]
    names = np.unique(labels)
    means = np.stack([first["raw"][labels == name].mean(axis=0) for name in names])  # (classes, D)
    nearest = np.linalg.norm(points[:, None] - means, axis=2).argmin(axis=1)
    return 100 * float(np.mean(names[nearest] == labels))


def figure(runs: Sequence[RunFolder], lines: Sequence[Record]) -> "Figure":
    """A row for each task, one t-SNE for a whole row, so that its columns can be compared; colour is the class."""
    shares = {(line["Scenario"], line["After task"]): line for line in lines}
    rows = [(scenario, pair, task) for scenario, pair in pairs(runs).items() for task in tasks_of(pair)]
    drawn, grid = panels(len(rows), 4, height=3.0 * len(rows), width=3.0)
    for index, (scenario, pair, task) in enumerate(rows):
        labels = load(pair[1], 1)["labels"]
        shown = evenly(labels, POINTS)
        planes = projected([points[shown] for points in columns(pair, task)])
        names = dict(enumerate(pair[1].tasks[0][:CLASSES]))
        for column, (axes, plane) in enumerate(zip(grid[4 * index : 4 * index + 4], planes, strict=True)):
            scatter(axes, plane, labels[shown], names, planes, size=14)
            share = shares[scenario, task if column else 1][COLUMNS[column]]
            axes.set_title(f"{COLUMNS[column]}: {share:.0f} %", fontsize=9.5)
        several = len({name for name, _, _ in rows}) > 1
        grid[4 * index].set_ylabel(f"{scenario}, after task {task}" if several else f"after task {task}")
    legend_below(drawn, columns=6, marker_scale=2)
    return drawn
