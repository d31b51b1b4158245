"""Figures about a model: accuracy lesson by lesson, confusion, calibration."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from gcab.evaluation.metrics import task_of_class
from gcab.report.plotting import PALETTE, STYLE, clip, heat_map, legend_below, panels, row_height

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
MOST_CLASSES = 25  # whose names can be read beside a matrix; of more, lessons are shown


def styled(draw: "Callable[P, Figure]") -> "Callable[P, Figure]":
    """Decorator that draws in the style that all figures share."""

    def drawn(*arguments: P.args, **named: P.kwargs) -> "Figure":
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return draw(*arguments, **named)

    return drawn


@styled
def lessons(series: Mapping[str, Sequence[float | None]]) -> "Figure":
    """A group of bars for every lesson, one bar for each way to know its accuracy."""
    figure, (axes,) = panels(1, 1, height=3.4, width=9)
    count = max(map(len, series.values()))
    width = 0.8 / len(series)
    for place, (name, values) in enumerate(series.items()):
        where = np.arange(1, count + 1) - 0.4 + width * (place + 0.5)
        heights = [0.0 if value is None else value for value in values]
        bars = axes.bar(where, heights, width * 0.92, color=PALETTE[place], label=name)
        texts = ["" if value is None else f"{value:.0f}" for value in values]
        if count * len(series) <= 40:
            axes.bar_label(bars, texts, fontsize=9, color="#444444")
    axes.set_xticks(range(1, count + 1))
    axes.set_ylim(0, 108)
    axes.set_xlabel("lesson")
    axes.set_ylabel("right among all classes, %")
    axes.grid(visible=False, axis="x")
    legend_below(figure)
    return figure


@styled
def confusion(shares: Sequence[Sequence[float]], names: Sequence[str], classes: Sequence[int], title: str) -> "Figure":
    """Per cent of each class (rows) taken for each (columns); where classes are many, of each lesson."""
    values, labels, what = np.array(shares, dtype=float), [clip(name, 16) for name in names], "class"
    if len(names) > MOST_CLASSES:
        task = task_of_class(classes)
        sums = np.zeros((len(classes), len(classes)))
        np.add.at(sums, np.ix_(task, task), np.nan_to_num(values))
        values = sums / np.maximum(np.bincount(task, minlength=len(classes)), 1)[:, None]
        labels, what = [f"lesson {number}" for number in range(1, len(classes) + 1)], "lesson"
    size = len(labels)
    figure, (axes,) = panels(1, 1, height=row_height(size) * size + 2.2, width=min(10.5, 3.2 + 0.62 * size))
    heat_map(axes, values, range(size), title)
    axes.set_xticks(range(size), labels, rotation=0 if size <= 4 else 40, ha="center" if size <= 4 else "right")
    axes.set_yticks(range(size), labels)
    axes.set_xlabel(f"taken for this {what}")
    axes.set_ylabel(f"true {what}")
    return figure


@styled
def calibration(curve: Sequence[Mapping[str, Any]]) -> "Figure":
    """Reliability diagram: accuracy over confidence; calibrated predictions lie on the diagonal."""
    figure, (axes,) = panels(1, 1, height=4.0, width=5.2)
    sure, right = ([100 * part[name] for part in curve] for name in ("confidence", "accuracy"))
    sizes = np.array([part["images"] for part in curve], dtype=float)
    axes.plot([0, 100], [0, 100], color="#999999", linestyle="--", linewidth=1.2, label="confidence that holds")
    axes.plot(sure, right, color=PALETTE[0], linewidth=1.4)
    area = 20 + 180 * sizes / sizes.max()
    axes.scatter(sure, right, s=area, color=PALETTE[0], label="photos of about the same confidence", zorder=3)
    axes.set_xlim(0, 103)
    axes.set_ylim(0, 103)
    axes.set_xlabel("confidence, %")
    axes.set_ylabel("right, %")
    legend_below(figure, columns=1, marker_scale=0.6)
    return figure
