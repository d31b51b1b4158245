"""The paper's figures, one function for each recipe: same axes, drawn from the lines of `numbers`."""

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from gcab.config import resolve
from gcab.evaluation.metrics import incremental_tag
from gcab.paper.evidence import (
    AGAIN,
    Record,
    by_scenario,
    distilled,
    fast_title,
    teacher_title,
    teachers,
    title_of,
)
from gcab.paper.numbers import FAST_CAPACITY
from gcab.paper.published import ACCURACY
from gcab.paper.recipes import SWEEPS
from gcab.report.plotting import (
    MARKERS,
    METHOD_COLOURS,
    PALETTE,
    PANEL_WIDTH,
    legend_below,
    looks,
    mean_curve,
    panels,
    style_key,
    task_axis,
)
from gcab.report.tables import results_of
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Sequence[Record]
PUBLISHED = "#222222"  # the paper's own numbers
GATES = {"Input gate, %": "--", "Hidden gate, %": ":"}
GREEK = {"lambda_gcab": "λ_GCAB", "lambda_pfr": "λ_pfr"}


def main(runs: Sequence[RunFolder], lines: Lines) -> "Figure":  # noqa: ARG001
    """ACC_TAG after each task, as in figure allscenarios; GCAB-Fast and the paper's result stand at the last one.

    A stored model that no longer reaches what its run's log says has a point of its own there, too.
    """
    scenarios = by_scenario(runs)
    methods = {title_of(group): group.runs[0].method for groups in scenarios.values() for group in groups}
    look = dict(zip(methods, looks(list(methods.values())), strict=True))
    figure, grid = panels(1, len(scenarios), height=4.4, width=PANEL_WIDTH * (1.3 if len(scenarios) == 1 else 1))
    for axes, (scenario, groups) in zip(grid, scenarios.items(), strict=True):
        last = len(groups[0].runs[0].tasks)
        for group in groups:
            colour, marker = look[title_of(group)]
            curves = [incremental_tag(results_of(run)) for run in group.runs]
            if results_of(group.runs[0]).joint:
                axes.axhline(float(np.mean(curves)), color=colour, linestyle="--", label=title_of(group))
            else:
                mean_curve(axes, curves, title_of(group), colour, marker)
            if students := [figures["gcab-fast"]["acc_tag"] for figures in distilled(group, FAST_CAPACITY)]:
                point(axes, last, float(np.mean(students)), colour, "s", fast_title(group), hollow=True)
            if (title := teacher_title(group)) != title_of(group):
                again = [one["acc_tag"] for one in teachers(group)]
                point(axes, last, float(np.mean(again)), colour, "X", title)
        if published := ACCURACY.get((scenario, "gcab", 0)):
            point(axes, last, published.tag, PUBLISHED, "*", "GCAB, the paper")
        task_axis(axes, 1, last)
        axes.set_ylim(0, 102)
        axes.set_title(scenario)
    grid[0].set_ylabel("ACC_TAG, %")
    legend_below(figure)
    return figure


def point(axes: "Axes", x: float, y: float, colour: str, marker: str, label: str, hollow: bool = False) -> None:
    """A single result, above the curves."""
    fill = "white" if hollow else colour
    size = 11 if marker == "*" else 8
    axes.plot(
        [x],
        [y],
        linestyle="",
        marker=marker,
        color=colour,
        markerfacecolor=fill,
        markersize=size,
        zorder=4,
        label=label,
    )


def ablation(runs: Sequence[RunFolder], lines: Lines) -> "Figure":  # noqa: ARG001
    """Bars of ACC_TAG, without class statistics and with them; the paper's numbers are diamonds."""
    scenarios = list(dict.fromkeys(line["Scenario"] for line in lines))
    most = max(len({line["Row"] for line in lines if line["Scenario"] == name}) for name in scenarios)
    figure, grid = panels(1, len(scenarios), height=0.62 * most + 1.3, width=1.5 * PANEL_WIDTH)
    for axes, scenario in zip(grid, scenarios, strict=True):
        mine = [line for line in lines if line["Scenario"] == scenario]
        rows = list(dict.fromkeys(line["Row"] for line in mine))
        if "joint" in rows:
            rows = [*(row for row in rows if row != "joint"), "joint"]
        twice = {line["Row"] for line in mine if line["Class statistics"]}
        twice &= {line["Row"] for line in mine if not line["Class statistics"]}

        def place_of(line: Record, rows: list[str] = rows, twice: set[str] = twice) -> float:
            """Beside the row's other bar, if it has one."""
            aside = 0.2 if line["Class statistics"] else -0.2
            return rows.index(line["Row"]) + (aside if line["Row"] in twice else 0.0)

        for statistics, colour, label in (
            ("", PALETTE[5], "without class statistics, as in the paper"),
            ("✓", PALETTE[0], "with class statistics (extended)"),
        ):
            chosen = [line for line in mine if line["Class statistics"] == statistics]
            places = [place_of(line) for line in chosen]
            values = [line["ACC_TAG"] for line in chosen]
            axes.barh(places, values, height=0.38, color=colour, label=label)
            for place, value in zip(places, values, strict=True):
                shade = "white" if statistics and value > 5 else PUBLISHED  # short bars do not reach under their number
                axes.text(0.8, place, f"{value:.1f}", va="center", fontsize=9, color=shade)
        if known := [line for line in mine if line["Paper ACC_TAG"]]:
            values, places = [line["Paper ACC_TAG"] for line in known], [place_of(line) for line in known]
            axes.plot(values, places, "D", color=PUBLISHED, markersize=5, label="the paper")
        axes.set_yticks(range(len(rows)), rows)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 100)
        axes.set_xlabel("ACC_TAG after the last task, %")
        axes.set_title(scenario)
    legend_below(figure)
    return figure


def hyperparameters(runs: Sequence[RunFolder], lines: Lines) -> "Figure":
    """Top: over λ_GCAB, bottom: over λ_pfr, on logarithmic axes; a dotted line marks what the profile has.

    Where class statistics join the decision, a dashed line shows what the heads reach without them.
    """
    figure, grid = panels(len(SWEEPS), 1, height=3.1 * len(SWEEPS), width=1.3 * PANEL_WIDTH)
    for axes, weight in zip(grid, SWEEPS, strict=True):
        mine = [line for line in lines if line["Weight"] == weight]
        for index, series in enumerate(dict.fromkeys(line["Series"] for line in mine)):
            found = [line for line in mine if line["Series"] == series]
            values, accuracies = zip(*((line["Value"], line["ACC_TAG"]) for line in found), strict=True)
            deviations = [line["ACC_TAG ±"] or 0.0 for line in found]
            look: dict[str, Any] = {"color": PALETTE[index % len(PALETTE)], "marker": MARKERS[index % len(MARKERS)]}
            bars = deviations if any(deviations) else None
            axes.errorbar(values, accuracies, yerr=bars, capsize=3, label=series, **look)
            if all(line["Heads alone"] is not None for line in found):
                look |= {"label": f"{series}, heads alone", "linestyle": "--", "markerfacecolor": "white"}
                axes.plot(values, [line["Heads alone"] for line in found], **look)
        for scenario, profile in dict.fromkeys((run.scenario, str(run.config["profile"])) for run in runs):
            own = getattr(resolve(scenario, "gcab", profile).options, weight)
            axes.axvline(own, color="#888888", linestyle=":", linewidth=1.5, label=f"profile {profile}")
        axes.set_xscale("log")
        ticks = sorted({line["Value"] for line in mine})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(0, max([line["ACC_TAG"] for line in mine], default=100) * 1.15 + 1)
        axes.set_xlabel(GREEK[weight])
        axes.set_ylabel("ACC_TAG, %")
    legend_below(figure)
    return figure


def capacity(runs: Sequence[RunFolder], lines: Lines) -> "Figure":  # noqa: ARG001
    """Units in use over tasks, a curve for each scenario, as in figure compression; thin: each gate by itself."""
    curves = list(dict.fromkeys((line["Scenario"], line["Method"]) for line in lines))
    several = len({scenario for scenario, _ in curves}) < len(curves)
    figure, (axes,) = panels(1, 1, height=4.2, width=1.4 * PANEL_WIDTH)
    for (scenario, method), colour, marker in zip(curves, cycle(PALETTE), cycle(MARKERS)):
        mine = [line for line in lines if (line["Scenario"], line["Method"]) == (scenario, method)]
        label = f"{scenario}, {method}" if several else scenario
        mean_curve(axes, [[line["Mean, %"] for line in mine]], label, colour, marker)
        for gate, style in GATES.items():
            axes.plot([line["Task"] for line in mine], [line[gate] for line in mine], style, color=colour, linewidth=1)
    for gate, style in GATES.items():
        style_key(axes, style, gate.removesuffix(", %").lower())
    task_axis(axes, 1, max(line["Task"] for line in lines))
    axes.set_ylim(0, 103)
    axes.set_ylabel("capacity used, %")
    legend_below(figure)
    return figure


def distillation(runs: Sequence[RunFolder], lines: Lines) -> "Figure":  # noqa: ARG001
    """Accuracy over the capacity used, a panel for each scenario; the dashed line is GCAB before distillation.

    Where class statistics join the decision, a third pair of lines shows the ACC_TAG that heads reach without them.
    """
    colours = {"ACC_TAW": METHOD_COLOURS["gcab-fast"], "ACC_TAG": METHOD_COLOURS["gcab"], "Heads alone": PALETTE[5]}
    panes = list(dict.fromkeys((line["Scenario"], line["Run"]) for line in lines))
    figure, grid = panels(1, len(panes), height=4.0, width=PANEL_WIDTH)
    several = len({scenario for scenario, _ in panes}) < len(panes)
    for axes, (scenario, run) in zip(grid, panes, strict=True):
        teacher, *students = [line for line in lines if (line["Scenario"], line["Run"]) == (scenario, run)]
        shares = [line["Capacity, %"] for line in students]
        lowest = 100.0
        for column, colour in colours.items():
            before, *values = (line[column] for line in (teacher, *students))
            if before is not None and None not in values:
                axes.plot(shares, values, marker="o", color=colour, label=f"GCAB-Fast, {column}")
                axes.axhline(before, color=colour, linestyle="--", linewidth=1.5, label=f"GCAB, {column}")
                lowest = min(lowest, before, *values)
        axes.set_xticks(sorted({20, 40, 60, 80, 100, *shares}))
        axes.set_xlim(min(20, *shares) - 5, 105)
        axes.set_ylim(max(0, 10 * (lowest // 10 - 1)), 102)
        axes.set_xlabel("capacity used, %")
        axes.set_title(f"{scenario}, {run}" if several or run.endswith(AGAIN) else scenario)
    grid[0].set_ylabel("accuracy after the last task, %")
    legend_below(figure, columns=4)
    return figure


def runtime(runs: Sequence[RunFolder], lines: Lines) -> "Figure":  # noqa: ARG001
    """Three panels of bars: size, time of one image, operations."""
    shown = {"Parameters, M": "parameters, million", "ms": "milliseconds, batch 1", "MACs, M": "MACs, million"}
    several = len({line["Tasks"] for line in lines}) > 1
    tasks = [f", {line['Tasks']} tasks" if several else "" for line in lines]
    names = [f"{line['Method']}{with_tasks}\n{line['Device']}" for line, with_tasks in zip(lines, tasks, strict=True)]
    colours = [PUBLISHED if "the paper" in name else PALETTE[2 if "Fast" in name else 0] for name in names]
    figure, grid = panels(1, 3, height=0.55 * len(lines) + 1.0, width=4.2)
    for axes, (column, title) in zip(grid, shown.items(), strict=True):
        values = [fastest(line) if column == "ms" else line[column] for line in lines]
        axes.barh(range(len(lines)), values, color=colours, height=0.6)
        for place, value in enumerate(values):
            axes.text(value + 0.01 * max(values), place, f"{value:.3g}", va="center", fontsize=9)
        axes.set_yticks(range(len(lines)), names if axes is grid[0] else [""] * len(lines), fontsize=9)
        axes.set_xlim(0, 1.2 * max(values))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_title(title)
    return figure


def fastest(line: Record) -> float:
    """Milliseconds as a CUDA graph where that was measured, else eager."""
    milliseconds: float = line.get("Recorded, ms") or line["Plain, ms"]
    return milliseconds


def memory(runs: Sequence[RunFolder], lines: Lines) -> "Figure":  # noqa: ARG001
    """Accuracy over all that is kept between tasks; hollow: the paper's."""
    scenarios = list(dict.fromkeys(line["Scenario"] for line in lines))
    titles = list(dict.fromkeys(line["Method"].removesuffix(AGAIN) for line in lines))
    colours = [METHOD_COLOURS["gcab"], METHOD_COLOURS["gcab-fast"], *PALETTE[3:], PALETTE[1]]
    figure, grid = panels(1, len(scenarios), height=4.2, width=PANEL_WIDTH * (1.3 if len(scenarios) == 1 else 1))
    for axes, scenario in zip(grid, scenarios, strict=True):
        mine, sizes = [line for line in lines if line["Scenario"] == scenario], list[float]()
        for line in mine:
            place = titles.index(line["Method"].removesuffix(AGAIN))
            colour, marker = colours[place % len(colours)], MARKERS[place % len(MARKERS)]
            if "Total, MB" in line:
                point(axes, line["Total, MB"], line["ACC_TAG"], colour, marker, line["Method"])
            if line["Paper total, MB"] and line["Paper ACC_TAG"]:
                kind = line["Method"].split()[0].strip(",")
                label = f"{kind}, the paper" if "Total, MB" in line else line["Method"]
                point(axes, line["Paper total, MB"], line["Paper ACC_TAG"], colour, marker, label, hollow=True)
            sizes += [line[column] for column in ("Total, MB", "Paper total, MB") if line.get(column)]
        axes.set_xlim(0, 1.08 * max(sizes))
        axes.set_ylim(0, 102)
        axes.set_xlabel("kept between tasks, MB")
        axes.set_title(scenario)
    grid[0].set_ylabel("ACC_TAG, %")
    legend_below(figure)
    return figure
