"""The command line of: rename."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, next_generation, say

EPILOG = """\
Nothing but the name changes, in all lessons; what the model knows stays the same, bit for bit. More photos of the class
come from a folder of the new name.

examples:
  gcab rename birds.gcab tit "great tit"
  gcab undo birds.gcab                     the name from before
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    rename = verb("rename", rename_verb, "give a class of a model another name, as its next generation", EPILOG)
    rename.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    rename.add_argument("old", metavar="OLD", help="the name of the class")
    rename.add_argument("new", metavar="NEW", help="its name from now on")


def rename_verb(verb: argparse.Namespace, console: Console) -> None:
    with next_generation(verb.model, "cpu") as (model, folder):
        numbers = isinstance(model.classes[0], int) and verb.new.isdecimal()
        model.rename(verb.old, int(verb.new) if numbers else verb.new)
    names = ", ".join(map(str, model.classes))
    say(console, f"{verb.model}  generation {folder.generation}: {verb.old} is called {verb.new} now ({names})")
