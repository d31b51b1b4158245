"""The command line of: history."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from gcab.cli.verbs import AddVerb, say, say_table


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    summary = "list every lesson and every other change of a model, with date, photos and accuracy then"
    history = verb("history", history_verb, summary)
    history.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    history.add_argument("--json", action="store_true", help="print JSON")


def history_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.classifier.history import history
    from gcab.classifier.model_folder import ModelFolder
    from gcab.cli.lesson_display import print_json
    from gcab.runs.model import require_sound

    folder = ModelFolder(verb.model)
    events = history(require_sound(folder.path, folder.description()))
    if verb.json:
        print_json(console, {"generations": list(folder.generations()), "history": events}, indent=1)
    else:
        show_history(events, list(folder.generations()), console)


def show_history(events: list[dict[str, Any]], generations: list[int], console: Console) -> None:
    """A line for each, oldest first; however narrow the window, names stay whole."""
    from gcab.cli.lesson_display import duration, subjects

    lines = [["when", "what", "classes", "photos", "held out", "then", "took", "about"]]
    for event in events:
        when = "-" if event["when"] is None else event["when"][:16].replace("T", " ")
        lesson = event["what"] == "learned"
        numbers = [event.get(name) for name in ("photos", "held_out")]
        accuracy, seconds = event.get("accuracy"), event.get("seconds")
        row = (
            when,
            f"lesson {event['lesson']}" if lesson else event["what"],
            str(event["classes"]),
            *("-" if number is None else str(number) for number in numbers),
            "-" if accuracy is None else f"{accuracy:.1f} %",
            "-" if seconds is None else duration(seconds),
            subjects(event["names"], event["again"]) if lesson else event["text"],
        )
        lines.append([*row])
    say_table(console, lines, left=(0, 1, 7))
    back = len(generations) - 1
    say(console, f"'gcab undo' can go {back} step{'s' * (back != 1)} back" if back else "nothing is kept for undo")
