"""The CLEVA-Compass (Mundt et al., ICLR 2022): what methods say they are made for, around it what their runs measured.

A star's beams end at the first circle where an element applies with the help of labels, at the second where it does
without. In a picture of several methods each has beams and a ring of its own, so that none covers another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import fmean as mean
from typing import TYPE_CHECKING, Any

import numpy as np

from gcab.methods.card import Compass
from gcab.methods.registry import method_named
from gcab.paper.compared import FAMILIES
from gcab.paper.comparison import every_entry, passes
from gcab.paper.evidence import Record, distilled, epochs_of, timings
from gcab.paper.numbers import FAST_CAPACITY
from gcab.paper.published import TITLES
from gcab.paper.rows import Recipe
from gcab.report.plotting import fitting_columns, looks, panels
from gcab.report.tables import MEGABYTE, Group
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes

FAMILY = "Family"
NAMES = {title: method for method, title in TITLES.items()}  # methods keep their colours
INNER = tuple(field.name.replace("_", " ") for field in fields(Compass))
HUB, HEIGHTS = 0.2, {"supervised": 0.6, "unsupervised": 1.0}  # radii
# What the outer level asks for -> the column of what a run measured of it; a run here says nothing of those without.
OUTER: Mapping[str, str] = {
    "compute time": "Seconds",
    "MAC operations": "MACs, M",
    "communication": "",
    "forgetting": "Forgetting, %",
    "forward transfer": "Forward transfer, %",
    "backward transfer": "Backward transfer, %",
    "openness": "",
    "parameters": "Parameters, M",
    "memory": "Memory, MB",
    "stored data": "Images, MB",
    "generated data": "",
    "optimisation steps": "Steps",
    "per-task metric": "Accuracies per task",
    "task order": "Task order",
    "data per task": "Classes per task",
}
WIDTH = 6.2  # inches of one picture
LABELS, RING, EDGE = 1.19, 1.4, 2.05  # radii: of the inner elements' names, of the outer level, of its end


def lines(recipe: Recipe, runs: Sequence[RunFolder]) -> list[Record]:
    """What every method declares and, where it was run, what was measured; families in turn."""
    order = [method for members in FAMILIES.values() for method in members]
    found: dict[str, list[tuple[int, Record]]] = {}
    for scenario, name, method, images, group in every_entry(recipe, runs):
        declared = method_named(method).card.compass
        measured = {} if group is None else of_fast(group) if method == "gcab-fast" else of_group(group)
        line: Record = {"Scenario": scenario, FAMILY: family_of(method), "Method": name, "Images": images}
        line |= {element: getattr(declared, element.replace(" ", "_")) or None for element in INNER}
        line |= {**dict.fromkeys(filter(None, OUTER.values())), "Passes per step": None, **measured}
        place = order.index(method) if method in order else len(order)
        found.setdefault(scenario, []).append((place, line))
    return [line for placed in found.values() for _, line in sorted(placed, key=lambda one: one[0])]


def family_of(method: str) -> str:
    return next((family for family, members in FAMILIES.items() if method in members), "Others")


def of_group(group: Group) -> Record:
    """Measurements of a method's runs, as means over the seeds."""
    run, final = group.runs[0], group.finals[0]
    counted = [model["macs"] / 1e6 for one in timings(run)[:1] for model in one["models"].values()][:1]
    return {
        "Epochs": epochs_of(run),
        "Seeds": len(group.finals),
        "Seconds": mean(group.values("seconds")),
        "MACs, M": counted[0] if counted else None,
        "Forgetting, %": group.mean("forgetting"),
        "Forward transfer, %": group.mean("forward_transfer"),
        "Backward transfer, %": group.mean("backward_transfer"),
        "Parameters, M": final["parameters"] / 1e6,
        "Memory, MB": sum(final["bytes"].values()) / MEGABYTE,
        "Images, MB": final["bytes"].get("images", 0) / MEGABYTE,
        "Steps": steps(run),
        "Accuracies per task": len(run.records("task")[-1]["tag"]),
        "Task order": run.config["scenario"]["order"],
        "Classes per task": "+".join(str(len(classes)) for classes in run.tasks),
        "Passes per step": passes(run),
    }


def of_fast(group: Group) -> Record:
    """Measurements of a method's distillation, if there was one."""
    found = distilled(group, FAST_CAPACITY)
    if not found:
        return {}
    student = found[0]["gcab-fast"]
    return {
        "Epochs": epochs_of(group.runs[0]),
        "Seeds": len(found),
        "Seconds": mean([figures["seconds"] for figures in found]),
        "Parameters, M": student["parameters"] / 1e6,
        "Memory, MB": student["bytes"] / MEGABYTE,
        "Images, MB": 0.0,
        "Steps": found[0]["options"].get("distillation_steps"),
    }


def steps(run: RunFolder) -> int | None:
    """Optimiser steps over all tasks."""
    last: dict[int, int] = {}
    for record in run.records("epoch"):
        last[record["task"]] = record.get("step", 0)
    return sum(last.values()) or None


def figure(runs: Sequence[RunFolder], lines: Sequence[Record]) -> "Figure":  # noqa: ARG001
    """A compass for each family and scenario."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for line in lines:
        groups.setdefault((line["Scenario"], line[FAMILY]), []).append(line)
    several, columns = len({scenario for scenario, _ in groups}) > 1, min(2, len(groups))
    rows = -(-len(groups) // columns)
    figure, grid = panels(rows, columns, height=1.02 * WIDTH * rows, width=WIDTH, polar=True)
    for axes, ((scenario, family), mine) in zip(grid, groups.items(), strict=False):
        compass(axes, mine)  # type: ignore[arg-type]
        axes.set_title(f"{scenario}, {family}" if several else family, pad=6)
    for axes in grid[len(groups) :]:
        axes.set_axis_off()
    return figure


def compass(axes: "PolarAxes", lines: Sequence[Record]) -> None:
    """One picture: the star within, a ring for each method around it."""
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_axis_off()
    axes.set_ylim(0, EDGE + 0.3)
    for radius in (HUB, *HEIGHTS.values(), RING, EDGE):
        axes.plot(np.linspace(0, 2 * np.pi, 200), np.full(200, radius), color="#AAAAAA", linewidth=0.8, zorder=1)
    sector, beam, ring = 2 * np.pi / len(INNER), 0.8 / len(lines), (EDGE - RING) / len(lines)
    colours = looks([NAMES.get(line["Method"], str(line["Method"])) for line in lines])
    for place, (line, (colour, _)) in enumerate(zip(lines, colours, strict=True)):
        heights = [HEIGHTS.get(line[element], 0.0) for element in INNER]
        angles = sector * (np.arange(len(INNER)) + (place - (len(lines) - 1) / 2) * beam)
        beams = [max(0.0, height - HUB) for height in heights]
        axes.bar(angles, beams, width=sector * beam, bottom=HUB, color=colour, label=title(line), zorder=2)
        told = [line.get(column) is not None for column in OUTER.values()]
        wide = 2 * np.pi / len(OUTER)
        where = wide * np.flatnonzero(told)
        bottom = RING + (len(lines) - 1 - place) * ring
        axes.bar(where, 0.86 * ring, width=0.94 * wide, bottom=bottom + 0.07 * ring, color=colour, zorder=2)
    spokes(axes, len(INNER), HUB, 1.0)
    spokes(axes, len(OUTER), RING, EDGE)
    names(axes, INNER, LABELS)
    names(axes, list(OUTER), EDGE + 0.15)
    columns = min(3, fitting_columns([title(line) for line in lines], WIDTH))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns, fontsize=10)


def title(line: Record) -> str:
    """The name of a method, with the size of its memory."""
    told = not line["Images"] or "buffer=" in line["Method"]
    return str(line["Method"]) if told else f"{line['Method']}, {line['Images']} images"


def spokes(axes: "PolarAxes", count: int, start: float, end: float) -> None:
    """Lines between elements."""
    for place in range(count):
        angle = 2 * np.pi * (place + 0.5) / count
        axes.plot([angle, angle], [start, end], color="#CCCCCC", linewidth=0.8, zorder=1)


def names(axes: "PolarAxes", elements: Sequence[str], radius: float) -> None:
    """Labels along the circle, upright in both halves; two words at most in a line."""
    for place, element in enumerate(elements):
        angle = 360 * place / len(elements)
        turned = -angle if angle <= 90 or angle >= 270 else 180 - angle
        head, _, tail = element.rpartition(" ")
        text = f"{head}\n{tail}" if len(element) > 12 and head else element
        look: dict[str, Any] = {"ha": "center", "va": "center", "rotation": turned, "fontsize": 9}
        axes.text(np.radians(angle), radius, text, **look)
