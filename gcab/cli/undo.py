"""The command line of: undo."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, say


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    undo = verb(
        "undo", undo_verb, "take a model back to before its last change: a task, a distillation, a class forgotten"
    )
    undo.add_argument("model", type=Path, metavar="MODEL", help="a model folder")


def undo_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.classifier.model_folder import ModelFolder

    folder = ModelFolder(verb.model)
    generation = folder.undo()
    names = [name for task in folder.description().get("tasks", []) for name in task]
    say(console, f"{verb.model}  back to generation {generation}: {len(names)} classes ({', '.join(names)})")
