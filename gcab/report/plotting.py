"""The look all figures share: panels, curves over tasks, heat maps, legends. No pyplot, so no global state."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]

# Okabe and Ito's colours, told apart by colour-blind readers too; some methods keep theirs in every report.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6A3D9A", "#7F6A55")
METHOD_COLOURS = {"gcab": PALETTE[0], "finetune": PALETTE[1], "gcab-fast": PALETTE[2], "joint": "#555555"}
MARKERS = "osD^vPX*"
PANEL_WIDTH = 5.2  # inches; two panels side by side fill a page
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "legend.frameon": False,
    "text.parse_math": False,  # a class may be called $x$
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "svg.hashsalt": "gcab",  # the same runs give the same bytes
}


def panels(
    rows: int,
    columns: int,
    height: float,
    width: float = PANEL_WIDTH,
    ratios: Sequence[float] | None = None,
    polar: bool = False,
) -> "tuple[Figure, list[Axes]]":
    """A figure with a grid of axes, listed row by row, that leaves room for whatever is written around them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height), layout="constrained")
    kind = {"projection": "polar"} if polar else None
    axes = figure.subplots(rows, columns, squeeze=False, height_ratios=ratios, subplot_kw=kind)
    return figure, list(axes.flat)


def looks(methods: Sequence[str]) -> list[tuple[str, str]]:
    """A colour and marker for each curve: a method keeps its colour in every report, its variants take others."""
    taken: list[str] = []
    for method in methods:
        own = METHOD_COLOURS.get(method)
        reserved = [*taken, *(METHOD_COLOURS.get(other) for other in methods)]
        free = [colour for colour in PALETTE if colour not in reserved]
        again = PALETTE[len(taken) % len(PALETTE)]  # with another marker
        taken.append(own if own and own not in taken else (free or [again])[0])
    rounds = [index + index // len(PALETTE) for index in range(len(taken))]
    return [(colour, MARKERS[place % len(MARKERS)]) for place, colour in zip(rounds, taken, strict=True)]


def mean_curve(
    axes: "Axes",
    curves: Sequence[Sequence[float]],
    label: str,
    colour: str,
    marker: str = "",
    line: str = "-",
    start: int = 1,
) -> None:
    """The mean of several seeds over tasks with a band of one standard deviation; seeds may have come unequally far."""
    length = max(map(len, curves))
    reached = [[curve[index] for curve in curves if len(curve) > index] for index in range(length)]
    mean = np.array([np.mean(values) for values in reached])
    where = np.arange(start, start + length)
    axes.plot(where, mean, color=colour, marker=marker, linestyle=line, label=label)
    if len(curves) > 1:
        deviation = np.array([np.std(values, ddof=1) if len(values) > 1 else 0.0 for values in reached])
        axes.fill_between(where, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)


def every(last: int, first: int = 1) -> list[int]:
    """Tick positions for tasks first..last, few enough that twenty tasks stay readable."""
    return list(range(first, last + 1, 1 if last <= 12 else 2))


def task_axis(axes: "Axes", first: int, last: int) -> None:
    """A horizontal axis that counts whole tasks."""
    axes.set_xticks(every(last, first))
    margin = 0.04 * (last - first) + 0.1
    axes.set_xlim(first - margin, last + margin)
    axes.set_xlabel("task learned")


def heat_map(axes: "Axes", values: Array, rows: Sequence[int], title: str) -> None:
    """Percentages as an annotated matrix; cells without a value stay empty, `rows` names the rows."""
    height, width = values.shape
    axes.imshow(np.ma.masked_invalid(values), cmap="Blues", vmin=0, vmax=100, aspect="auto")
    size = 10 if width <= 10 else 7
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            shade = "white" if value > 60 else "#222222"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=size, color=shade)
    axes.set_xticks(range(width), [str(task) for task in range(1, width + 1)])
    axes.set_yticks(range(height), [str(row) for row in rows])
    axes.tick_params(length=0, labelsize=min(size + 1, 10))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(fill(title, 50), fontsize=11)


def legend_below(figure: "Figure", columns: int = 3, marker_scale: float = 1.0) -> None:
    """One legend for all panels, under them, where it covers no data; the figure grows by its height."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    labels, handles = list(found), list(found.values())
    columns = min(columns, fitting_columns(labels, figure.get_figwidth()), len(labels))
    figure.set_figheight(figure.get_figheight() + 0.24 * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, markerscale=marker_scale)


def fitting_columns(labels: Sequence[str], width: float) -> int:
    """How many columns of a legend fit so many inches."""
    return max(1, int(width * 72 / (7 * max(map(len, labels)) + 45)))


def style_key(axes: "Axes", line: str, meaning: str) -> None:
    """Explain a line style once for all colours."""
    axes.plot([], [], color="#555555", linestyle=line, linewidth=1.5, label=meaning)


def row_height(rows: int) -> float:
    """Inches for one row of a heat map: many rows must still fit a page."""
    return 0.4 if rows <= 10 else 0.27


def clip(text: str, length: int = 22) -> str:
    """Shorten a name so that it fits beside a figure."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def save(figure: "Figure", path: Path | BytesIO, kind: str) -> None:
    """Write a figure the same way every time: no date inside, a white page behind."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure.savefig(path, format=kind, facecolor="white", metadata={"Date": None} if kind == "svg" else {})
