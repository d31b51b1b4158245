"""The command line of: info."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from gcab.cli.verbs import AddVerb, counted, require_model, say, say_table
from gcab.sizes import pixels


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    info = verb("info", info_verb, "show what a model has learned: tasks, classes, accuracy, capacity left, size")
    info.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    info.add_argument("--json", action="store_true", help="print JSON")


def info_verb(verb: argparse.Namespace, console: Console) -> None:
    require_model(verb.model)
    from gcab.classifier.overview import overview
    from gcab.cli.lesson_display import print_json

    facts = overview(verb.model)
    if verb.json:
        print_json(console, facts, indent=1)
    else:
        show_overview(facts, console)


def show_overview(facts: dict[str, Any], console: Console) -> None:
    """Print an overview."""
    show_model(facts, console)
    show_tasks(facts, console)
    show_trust(facts, console)
    show_storage(facts, console)


def show_model(facts: dict[str, Any], console: Console) -> None:
    """Print what the model is: its generation, its size in classes, its network."""
    before = [number for number in facts["generations"] if number < facts["generation"]]
    numbers = f"generation{'s' * (len(before) > 1)} {', '.join(map(str, before))}"
    kept = f", {numbers} kept for undo" if before else ""
    say(
        console,
        f"{facts['model']}  {facts['method']}, generation {facts['generation']}{kept}, written by gcab {facts['gcab']}",
    )
    known_classes = f"{counted(facts['classes'], 'class')} in {counted(len(facts['tasks']), 'task')}"
    say(console, f"{known_classes}; images {pixels(facts['image_size'])}; {network_of(facts)}")
    if facts["mirrors"]:
        say(console, "an image and its mirror image count as the same")
    pretrained = facts["pretrained"]
    if pretrained is not None:
        say(console, f"encoder: licence {pretrained['licence']}; SHA-256 {pretrained['digest'][:16]}…")
        mean, std = (", ".join(f"{value:.4g}" for value in pretrained[name]) for name in ("mean", "std"))
        say(
            console,
            f"it sees the centre {pretrained['crop']} of {pretrained['resize']} pixels, less {mean}, divided by {std}: "
            f"{pretrained['preprocessing']}",
        )


def network_of(facts: dict[str, Any]) -> str:
    """The network in a few words."""
    encoder, pretrained = facts["encoder"], facts["pretrained"]
    if pretrained is not None:
        return f"frozen encoder {pretrained['origin']} ({pretrained['kind']})"
    if encoder is None:
        return "no network: nothing is trained"
    shape = f"width {encoder['width']}, {encoder['blocks']} blocks, {encoder['heads']} heads"
    return f"encoder {encoder['name'] or 'of its own'} ({shape})"


def show_tasks(facts: dict[str, Any], console: Console) -> None:
    """Print a table of the tasks, and what accuracy to expect."""
    from gcab.cli.lesson_display import subjects
    from gcab.report.model_page import estimate_now, warnings_of

    def known(value: Any, unit: str = "") -> str:
        return "-" if value is None else f"{value}{unit}"

    epochs = [] if facts["encoder"] is None else ["epochs"]
    estimated = False
    lines = [["task", "learned", "classes", "photos", "held out", "then", "now", *epochs, "names"]]
    for task in facts["tasks"]:
        accuracy = None if task["accuracy"] is None else round(task["accuracy"], 1)
        when = "-" if task["when"] is None else task["when"][:16].replace("T", " ")
        row = (task["index"], when, task["classes"], known(task["images"]), known(task["held_out"]))
        about = subjects(task["names"], task["again"])
        measured = task is facts["tasks"][-1] and accuracy is not None and task["now"] == round(task["accuracy"], 2)
        sign = "" if measured else "~"
        estimated |= task["now"] is not None and not measured
        now = "-" if task["now"] is None else f"{sign}{task['now']:.1f} %"
        more = (known(accuracy, " %"), now, *(known(task[name]) for name in epochs), about)
        lines.append([*map(str, (*row, *more))])
    say_table(console, lines, left=[len(lines[0]) - 1])
    if estimated:
        say(
            console,
            "then: right among all classes when learned, on held-out photos; now ~: estimated",
        )
    expected = estimate_now(facts)
    if expected is not None and len(facts["tasks"]) > 1:
        say(
            console,
            f"all classes: about {expected:.0f} % of new photos should be named right now (an estimate)",
        )
    for warning in warnings_of(facts, None):
        say(console, f"warning: {warning}")


def show_trust(facts: dict[str, Any], console: Console) -> None:
    """Print who decides, the capacity left, and how far probabilities are to be trusted."""
    from gcab.classifier.calibration import FEWEST

    if facts["verdict"]:
        say(console, facts["verdict"])
    if facts["capacity_left"]:
        say(
            console,
            "capacity left: "
            + ", ".join(f"{100 * share:.0f} % {name}" for name, share in facts["capacity_left"].items()),
        )
    calibration = facts["calibration"]
    if not calibration["images"]:
        say(console, "nothing is flagged as unknown")
        return
    error = calibration["expected_calibration_error"]
    told = "not measured (the last task has too few)" if error is None else f"{100 * error:.1f} %"
    flags = "" if calibration["tells_unknown"] else f", below {FEWEST} no photo is flagged as unknown"
    say(
        console,
        f"calibrated on {counted(calibration['images'], 'photo')} held or left out{flags}; calibration error: {told}",
    )


def show_storage(facts: dict[str, Any], console: Console) -> None:
    """Print the size of the model, the photos in it, and work that waits in its folder."""
    from gcab.classifier.audit import keeping
    from gcab.classifier.model_folder import UNITS
    from gcab.cli.lesson_display import amount

    say(console, f"size: {amount(facts['bytes']['model'])}, the whole folder {amount(facts['bytes']['folder'])}")
    images = facts["images"]
    if images["count"]:
        say(console, keeping(facts["method"], images["count"], images["bytes"]))
    if waiting := facts["interrupted"]:
        unit = UNITS[waiting["kind"]]
        after = f" (after {unit} {waiting[unit]})" if waiting[unit] else ""
        classes = ", ".join(waiting["classes"])
        say(console, f"a {waiting['kind']} is under way, or waits to be continued: {classes}{after}")
