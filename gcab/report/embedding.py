"""Test images of task 1 as points in a plane: do their classes stay apart while later tasks move the encoder?"""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from gcab.report.plotting import Array, clip, legend_below, panels
from gcab.report.tables import group_runs
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 600  # of a run, over all its panels
CLASSES = 20  # more colours than this cannot be told apart


def embedding(runs: Sequence[RunFolder]) -> "Figure | None":
    """The paper's embedding figure of each method's first seed."""
    shown = [(group, sets) for group in group_runs(runs) if (sets := thinned(group.runs[0]))]
    if not shown:
        return None
    first_classes = shown[0][0].runs[0].tasks[0]  # one legend serves all rows
    shown = [(group, sets) for group, sets in shown if group.runs[0].tasks[0] == first_classes]
    planes = [(group, sets[1]["labels"], in_one_plane(sets)) for group, sets in shown]
    rows = [(*row, later) for row in planes for later in sorted({task for task, _ in row[2]} - {1})]
    figure, grid = panels(len(rows), 3, height=3.2 * len(rows), width=3.5)
    for index, (group, labels, plane, later) in enumerate(rows):
        columns = {
            "after task 1": (1, "raw"),
            f"after task {later}, as is": (later, "raw"),
            f"after task {later}, compensated": (later, "compensated"),
        }
        names = {label: first_classes[label] for label in np.unique(labels)}
        for axes, (title, which) in zip(grid[3 * index :], columns.items(), strict=False):
            scatter(axes, plane[which], labels, names, [*plane.values()], size=16)
            axes.set_title(title, fontsize=11)
        if len(shown) > 1:
            grid[3 * index].set_ylabel(fill(group.label, 30))
    legend_below(figure, columns=6, marker_scale=2)
    return figure


def thinned(run: RunFolder) -> dict[int, dict[str, Array]]:
    """The embeddings of the same task-1 images after task 1, task 2 and the last task, thinned to a readable number."""
    tasks = sorted(int(name.rpartition("-")[2]) for name in run.arrays_names("embedding-"))
    sets = {task: run.embedding(task) for task in tasks[:2] + tasks[2:][-1:]}
    found = {task: arrays for task, arrays in sets.items() if arrays is not None}
    finite = all(np.isfinite(arrays[kind]).all() for arrays in found.values() for kind in ("raw", "compensated"))
    if len(found) < 2 or 1 not in found or not finite:
        return {}
    kept = evenly(found[1]["labels"], POINTS // (2 * len(found) - 1))
    return {task: {key: values[kept] for key, values in arrays.items()} for task, arrays in found.items()}


def evenly(labels: Array, most: int) -> Array:
    """At most `most` positions, evenly spread over the images of the first classes."""
    candidates = np.flatnonzero(np.isin(labels, np.unique(labels)[:CLASSES]))
    return candidates[np.linspace(0, len(candidates) - 1, min(most, len(candidates))).astype(int)]


def in_one_plane(sets: Mapping[int, Mapping[str, Array]]) -> dict[tuple[int, str], Array]:
    """One t-SNE of all points of a run, by task and kind: (n, 2) each; after task 1 there is nothing to compensate."""
    keys = [
        (task, kind) for task in sorted(sets) for kind in ("raw", "compensated") if (task, kind) != (1, "compensated")
    ]
    return dict(zip(keys, projected([sets[task][kind] for task, kind in keys]), strict=True))


def projected(sets: Sequence[Array]) -> list[Array]:
    """One t-SNE over all sets of points (n, D), so that a point that did not move stays where it was: (n, 2) each."""
    from sklearn.manifold import TSNE

    points = np.concatenate(list(sets)).astype(np.float32)
    plane = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), init="pca", random_state=0).fit_transform(points)
    return np.split(plane, len(sets))


def scatter(
    axes: "Axes", plane: Array, labels: Array, names: Mapping[int, str], beside: Sequence[Array], size: float
) -> None:
    """Points (n, 2) in the colour of their class, with axis limits that all panels beside them share."""
    from matplotlib import colormaps

    colours = colormaps["tab10" if len(names) <= 10 else "tab20"](np.arange(len(names)))
    for (label, name), colour in zip(names.items(), colours, strict=True):
        points = plane[labels == label]
        axes.scatter(points[:, 0], points[:, 1], s=size, color=colour, linewidths=0, label=clip(name))
    edges = np.concatenate(list(beside))
    axes.set_xlim(edges[:, 0].min() - 2, edges[:, 0].max() + 2)
    axes.set_ylim(edges[:, 1].min() - 2, edges[:, 1].max() + 2)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)
