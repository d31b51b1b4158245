"""The comparisons of all methods as pictures, from the lines of `comparison`: hollow is the paper's."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gcab.config import scenario_preset
from gcab.paper.compared import MEMORIES
from gcab.paper.comparison import task
from gcab.paper.drawings import PUBLISHED, point
from gcab.paper.evidence import Record
from gcab.paper.published import TITLES
from gcab.report.plotting import (
    MARKERS,
    PALETTE,
    PANEL_WIDTH,
    legend_below,
    mean_curve,
    panels,
    task_axis,
)
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Sequence[Record]
LABELS = {0: "no image", **{images: f"{images} images" for images in MEMORIES}}
COLOURS = {0: PALETTE[0], MEMORIES[0]: PALETTE[4], MEMORIES[1]: PALETTE[1]}
Style = tuple[str, str, str]  # colour, marker, line
WAYS = ("-", "--", "-.")
ASIDE = 4  # of the paper's markers
ALWAYS: Mapping[str, Style] = {  # in every panel, to compare with
    TITLES["joint"]: (PUBLISHED, "", "--"),
    TITLES["finetune"]: (PUBLISHED, "", ":"),
    TITLES["gcab"]: (PALETTE[0], MARKERS[0], "-"),
}


def table(runs: Sequence[RunFolder], lines: Lines) -> "Figure":  # noqa: ARG001
    """ACC_TAG and ACC_TAW of every method, a panel of each for every scenario; what has no marker has not been run."""
    scenarios = list(dict.fromkeys(line["Scenario"] for line in lines))
    names = {
        name: list(dict.fromkeys(line["Method"] for line in lines if line["Scenario"] == name)) for name in scenarios
    }
    most = max(map(len, names.values()))
    figure, grid = panels(len(scenarios), 2, height=(0.24 * most + 1.2) * len(scenarios), width=1.15 * PANEL_WIDTH)
    for row, scenario in enumerate(scenarios):
        for axes, column in zip(grid[2 * row :], ("ACC_TAG", "ACC_TAW"), strict=False):
            mine = [line for line in lines if line["Scenario"] == scenario]
            dots(axes, mine, names[scenario], column)
            axes.set_title(f"{scenario}, {column}")
            if column == "ACC_TAW":
                axes.tick_params(axis="y", labelleft=False)
    legend_below(figure)
    return figure


def dots(axes: "Axes", lines: Lines, names: Sequence[str], column: str) -> None:
    """A line for every method, ours and the paper's as markers on it."""
    known = dict.fromkeys(line["Images"] for line in lines)
    colour = {images: COLOURS.get(images, PALETTE[(5 + place) % len(PALETTE)]) for place, images in enumerate(known)}
    for line in lines:
        images, place = line["Images"], names.index(line["Method"])
        label = LABELS.get(images, f"{images} images")
        if line[f"Paper {column}"] is not None:
            point(axes, line[f"Paper {column}"], place, colour[images], "o", f"{label}, the paper", hollow=True)
        if line[column] is not None:
            point(axes, line[column], place, colour[images], "D", label)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 102)
    axes.set_xlabel("after the last task, %")


def curves(runs: Sequence[RunFolder], lines: Lines) -> "Figure":  # noqa: ARG001
    """ACC_TAG after each task: a row of panels for each scenario, a panel for each memory.

    The paper's numbers, which are of the last task, stand hollow behind it.
    """
    scenarios = list(dict.fromkeys(line["Scenario"] for line in lines))
    memories = sorted({line["Images"] for line in lines}, key=lambda images: (images == 0, images))
    style = styles(lines)
    figure, grid = panels(len(scenarios), len(memories), height=3.6 * len(scenarios), width=0.95 * PANEL_WIDTH)
    for place, axes in enumerate(grid):
        scenario, images = scenarios[place // len(memories)], memories[place % len(memories)]
        last = int(scenario_preset(scenario)["scenario.tasks"])
        mine = [line for line in lines if line["Scenario"] == scenario]
        shown = [line for line in mine if line["Images"] == images or line["Method"] in ALWAYS]
        for line in shown:
            curve(axes, line, last, *style[line["Method"]])
        task_axis(axes, 1, last)
        for turn, line in enumerate(line for line in shown if line["Paper ACC_TAG"] is not None):
            colour, marker, _ = style[line["Method"]]
            where = last + 0.045 * last * (1 + turn % ASIDE)  # beside each other, as many are alike
            point(axes, where, line["Paper ACC_TAG"], colour, marker or "o", "_", hollow=True)
            axes.set_xlim(right=last + 0.045 * last * (1 + ASIDE))
        axes.set_ylim(0, 102)
        axes.set_title(f"{scenario}, {LABELS.get(images, f'{images} images')}")
        if place % len(memories) == 0:
            axes.set_ylabel("ACC_TAG, %")
    grid[0].plot([], [], "o", color=PUBLISHED, markerfacecolor="white", markersize=8, label="hollow: the paper")
    legend_below(figure, columns=6)
    return figure


def styles(lines: Lines) -> Mapping[str, Style]:
    """Every method's own, apart from others that it shares a panel with."""
    found: dict[str, Style] = dict(ALWAYS)
    for stores in (True, False):
        names = dict.fromkeys(line["Method"] for line in lines if (line["Images"] > 0) == stores)
        for place, name in enumerate(name for name in names if name not in ALWAYS):
            again, colour = divmod(place, len(PALETTE) - 1)
            found[name] = (PALETTE[1 + colour], MARKERS[(1 + place) % len(MARKERS)], WAYS[again % len(WAYS)])
    return found


def curve(axes: "Axes", line: Record, last: int, colour: str, marker: str, way: str) -> None:
    """What a method reached after each task."""
    reached = [line[column] for number in range(1, last + 1) if line.get(column := task(number)) is not None]
    name = line["Method"]
    if len(reached) == 1 < last:  # all tasks at once
        axes.axhline(reached[0], color=colour, linestyle=way, linewidth=1.2, label=name)
    else:
        mean_curve(axes, [reached or [float("nan")]], name, colour, marker, way)
