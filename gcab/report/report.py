"""One HTML file that shows what a set of runs achieved: nothing outside it is needed to read it."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gcab.errors import GcabError
from gcab.evaluation.metrics import METRICS, describe
from gcab.report.figures import FIGURES, draw
from gcab.report.page import Opening, capitalised, card, date_of, figure_section, write_page
from gcab.report.tables import (
    MEGABYTE,
    NOTHING,
    Group,
    accuracy_table,
    comparisons,
    group_runs,
    is_pretrained,
    memory_table,
    progress,
    results_of,
    run_label,
)
from gcab.runs.environment import HARDWARE
from gcab.runs.folder import RunFolder

CARD_METRICS = ("acc_tag", "acc_taw", "forgetting")
CARD_GROUPS = 4  # with more, the comparison below is the place to look


def write_report(runs: Sequence[RunFolder], out: Path) -> Path:
    """A page with the runs' numbers and figures, written where asked."""
    if not runs:
        raise GcabError("there is no run to report on: give at least one run folder.")
    groups = sorted(group_runs(runs), key=_headline_order)
    opening = Opening("gcab report", _title(groups), _lead(groups[0]), _warnings(groups), _cards(groups))
    sections = {
        "compare_table": "\n".join(table.html() for table in comparisons(runs)),
        "accuracy_table": accuracy_table(runs).html(),
        "memory_table": memory_table(runs).html(),
        "explanations": "\n".join(_explanation(name) for name in METRICS),
        "runs": "\n".join(_provenance(group, run) for group in groups for run in group.runs),
    }
    return write_page(out, opening, "runs.html", sections | {f"figure_{name}": _figure(name, runs) for name in FIGURES})


def _headline_order(group: Group) -> tuple[bool, bool, float]:
    """The best method leads; joint training and pretrained encoders, no competitors, and unfinished runs follow."""
    mean, run = group.mean("acc_tag"), group.runs[0]
    return mean is None, results_of(run).joint or is_pretrained(run), -(mean or 0.0)


def _title(groups: Sequence[Group]) -> str:
    scenarios = dict.fromkeys(run.scenario for group in groups for run in group.runs)
    methods = dict.fromkeys(group.method for group in groups)
    return f"{', '.join(methods)} on {', '.join(scenarios)}"


def _lead(group: Group) -> str:
    """The result in one paragraph for someone who has never heard of the metrics."""
    run = group.runs[0]
    classes = sum(map(len, run.tasks))
    images = _images_stored(group)
    kept = {NOTHING: "", "0": ", storing no image"}.get(images, f", storing {images} of images")
    told, images_of = group.mean("acc_tag"), "held-out training" if run.held_out else "test"
    opening = f"{group.label}: {classes} classes of {run.scenario} in {len(run.tasks)} tasks{kept}."
    if told is None:
        return f"{opening} No run has finished yet; this page shows what there is so far."
    return (
        f"{opening} After the last task it names {told:.1f} % of the {images_of} images correctly (each task counts by "
        f"its number of classes), choosing among all {classes} classes, and {group.mean('acc_taw'):.1f} % when told "
        "which task an image belongs to."
    )


def _warnings(groups: Sequence[Group]) -> list[str]:
    """A run under way must not be taken for a result."""
    return [
        f"<strong>Unfinished:</strong> {escape(group.label)}, seed {run.seed}: {progress(run)}. "
        "Its numbers are not final."
        for group in groups
        for run in group.runs
        if not run.final()
    ]


def _cards(groups: Sequence[Group]) -> list[str]:
    """The numbers to remember: large for the leading method, small for those beside it."""
    cards = [_card(*describe(name), [_value(group, name) for group in groups], groups) for name in CARD_METRICS]
    sentence = "What is kept of earlier tasks' training images when the last task has been learned."
    return [*cards, _card("Images stored", sentence, [_images_stored(group) for group in groups], groups)]


def _card(title: str, sentence: str, values: Sequence[str], groups: Sequence[Group]) -> str:
    others = "".join(
        f"<dt>{escape(group.label)}</dt><dd>{value}</dd>" for group, value in zip(groups[1:], values[1:], strict=True)
    )
    beside = f"<dl>{others}</dl>" if 1 < len(groups) <= CARD_GROUPS else ""
    return card(title, values[0], sentence, beside)


def _value(group: Group, metric: str) -> str:
    """The mean over finished runs; of a group without one, what its furthest run has reached."""
    mean = group.mean(metric)
    if mean is not None:
        return f"{mean:.1f}"
    reached = METRICS[metric](max(map(results_of, group.runs), key=lambda results: len(results.tag)))
    return NOTHING if group.finals or reached is None else f"{reached:.1f} <small>so far</small>"


def _images_stored(group: Group) -> str:
    last = group.last_record
    if last is None:
        return NOTHING
    stored = last["bytes"].get("images", 0)
    return f"{stored / MEGABYTE:.2f} MB" if stored else "0"


def _figure(name: str, runs: Sequence[RunFolder]) -> str:
    """A section with the figure inside it, or nothing where the runs do not hold its data."""
    figure = draw(name, runs)
    if figure is None:
        return ""
    title, caption, _ = FIGURES[name]
    return figure_section(name, title, caption, figure)


def _explanation(name: str) -> str:
    title, sentence = describe(name)
    return f"<dt>{escape(title)}</dt><dd>{escape(capitalised(sentence))}</dd>"


def _provenance(group: Group, run: RunFolder) -> str:
    """The provenance of a run: all that is needed to repeat it or to trust it."""
    document, final = run.document, run.final()
    facts = {
        "Command": f"<code>{escape(str(document.get('command', NOTHING)))}</code>",
        "Started": date_of((run.path / "config.json").stat().st_mtime),
        "Last record": date_of(run.metrics.stat().st_mtime),
        "Training and evaluation": duration_of(final["seconds"]) if final else f"unfinished, {progress(run)}",
        "Device": escape(_hardware(document) or NOTHING),
        "Versions": escape(", ".join(f"{name} {number}" for name, number in document["versions"].items())),
        "Commit": escape(run.commit or NOTHING),
    }
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
    settings = json.dumps({"config": run.config, "tasks": run.tasks}, indent=2, ensure_ascii=False)
    return (
        f'<h3>{escape(run_label(group, run))}</h3><dl class="facts">{rows}</dl>'
        f"<details><summary>Configuration and tasks</summary><pre>{escape(settings)}</pre></details>"
    )


def _hardware(document: Mapping[str, Any]) -> str:
    """The hardware of a run as far as it was recorded: earlier versions only recorded the device's name."""
    words = {"cuda": "CUDA ", "driver": "driver "}
    return ", ".join(f"{words.get(key, '')}{document[key]}" for key in HARDWARE if document.get(key))


def duration_of(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{minutes:.1f} min" if minutes >= 1 else f"{seconds:.0f} s"
