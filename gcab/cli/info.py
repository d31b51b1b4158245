"""The command line of: info."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from gcab.cli.verbs import AddVerb, say


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    info = verb("info", info_verb, "show what a model has learned: tasks, classes, accuracy, capacity left, size")
    info.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    info.add_argument("--json", action="store_true", help="print JSON")


def info_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.classifier.overview import overview
    from gcab.cli.lesson_display import print_json

    facts = overview(verb.model)
    if verb.json:
        print_json(console, facts, indent=1)
    else:
        show_overview(facts, console)


def show_overview(facts: dict[str, Any], console: Console) -> None:
    """Facts for people."""
    from rich.table import Table

    from gcab.classifier.audit import keeping
    from gcab.classifier.calibration import FEWEST
    from gcab.cli.lesson_display import amount, subjects

    def known(value: Any, unit: str = "") -> str:
        return "-" if value is None else f"{value}{unit}"

    encoder, calibration = facts["encoder"], facts["calibration"]
    network = "no network: nothing is trained"
    if encoder is not None:
        shape = f"width {encoder['width']}, {encoder['blocks']} blocks, {encoder['heads']} heads"
        network = f"encoder {encoder['name'] or 'of its own'} ({shape})"
    pretrained = facts["pretrained"]
    if pretrained is not None:
        network = f"frozen encoder {pretrained['origin']} ({pretrained['kind']})"
    before = [number for number in facts["generations"] if number < facts["generation"]]
    kept = f", generation {before[-1]} kept for undo" if before else ""
    say(
        console,
        f"{facts['model']}  {facts['method']}, generation {facts['generation']}{kept}, written by gcab {facts['gcab']}",
    )
    say(
        console,
        f"{facts['classes']} classes in {len(facts['tasks'])} tasks; images {facts['image_size']} x "
        f"{facts['image_size']} pixels; {network}",
    )
    if pretrained is not None:
        say(console, f"encoder: licence {pretrained['licence']}; SHA-256 {pretrained['digest'][:16]}…")
        mean, std = (", ".join(f"{value:.4g}" for value in pretrained[name]) for name in ("mean", "std"))
        say(
            console,
            f"it sees the centre {pretrained['crop']} of {pretrained['resize']} pixels, less {mean}, divided by {std}: "
            f"{pretrained['preprocessing']}",
        )
    table = Table(box=None, pad_edge=False)
    epochs = [] if encoder is None else ["epochs"]
    for heading in ("task", "learned", "classes", "photos", "held out", "then", "now", *epochs):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("names")
    for task in facts["tasks"]:
        accuracy = None if task["accuracy"] is None else round(task["accuracy"], 1)
        when = "-" if task["when"] is None else task["when"][:16].replace("T", " ")
        row = (task["index"], when, task["classes"], known(task["images"]), known(task["held_out"]))
        about = escape(subjects(task["names"], task["again"]))
        sign = "" if task["index"] == len(facts["tasks"]) else "~"
        now = "-" if task["now"] is None else f"{sign}{task['now']:.1f} %"
        more = (known(accuracy, " %"), now, *(known(task[name]) for name in epochs), about)
        table.add_row(*map(str, (*row, *more)))
    console.print(table, highlight=False)
    if any(task["now"] is not None for task in facts["tasks"][:-1]):
        say(
            console,
            "then: right among all classes when learned, on held-out photos; now ~: estimated, as those are gone",
        )
    if facts["capacity_left"]:
        say(
            console,
            "capacity left: "
            + ", ".join(f"{100 * share:.0f} % {name}" for name, share in facts["capacity_left"].items()),
        )
    error = calibration["expected_calibration_error"]
    if calibration["images"]:
        told = "not measured (the last task has too few)" if error is None else f"{100 * error:.1f} %"
        flags = "" if calibration["tells_unknown"] else f", below {FEWEST} no photo is flagged as unknown"
        say(console, f"calibrated on {calibration['images']} held-out photos{flags}; calibration error: {told}")
    else:
        say(console, "not calibrated: the last lesson held out no photos; nothing is flagged as unknown")
    say(console, f"size: {amount(facts['bytes']['model'])}, the whole folder {amount(facts['bytes']['folder'])}")
    images = facts["images"]
    if images["count"]:
        say(console, keeping(facts["method"], images["count"], images["bytes"]))
    if facts["interrupted"]:
        waiting, epoch = ", ".join(facts["interrupted"]["classes"]), facts["interrupted"]["epoch"]
        after = f" (after epoch {epoch})" if epoch else ""
        say(console, f"a lesson is under way, or waits to be continued: {waiting}{after}")
