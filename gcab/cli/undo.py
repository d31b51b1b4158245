"""The command line of: undo."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, counted, positive, say

EPILOG = """\
One step is kept, unless 'gcab learn --keep N' asked for more: each is a whole model, as large as the current one. What
is undone is gone for good.

examples:
  gcab undo birds.gcab
  gcab undo birds.gcab --steps 3
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    undo = verb(
        "undo",
        undo_verb,
        "take a model back to before its last change: a task, a distillation, a class forgotten, renamed or joined",
        EPILOG,
    )
    undo.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    undo.add_argument(
        "--steps", type=positive, default=1, metavar="N", help="so many changes; 'gcab history' lists (1)"
    )


def undo_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.classifier.model_folder import ModelFolder

    folder = ModelFolder(verb.model)
    generation = folder.undo(verb.steps)
    names = [name for task in folder.description().get("tasks", []) for name in task]
    say(console, f"{verb.model}  back to generation {generation}: {counted(len(names), 'class')} ({', '.join(names)})")
