"""The command line of: forget."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, add_keep, counted, next_generation, say

EPILOG = """\
A model of the method eye is afterwards, bit for bit, one that never saw the class. It needs all photos of the class for
that, as it keeps the sums of all classes together; photos that were never learned may be among them.
Taught with --set options.forgettable=true it keeps sums by class, and needs none.

A model of gcab loses the class, its mean and its part in the eye; what it says is left, only training anew removes.

examples:
  gcab forget birds.gcab magpie --photos photos/week2/
  gcab undo birds.gcab                              the model knows magpies again
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    forget = verb("forget", forget_verb, "take a class out of a model, as its next generation", EPILOG)
    forget.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    forget.add_argument("label", metavar="CLASS", help="the name of the class")
    forget.add_argument("--photos", type=Path, metavar="DIR", help="the photos of the class, or a folder with theirs")
    add_keep(forget)
    forget.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")


def forget_verb(verb: argparse.Namespace, console: Console) -> None:
    with next_generation(verb.model, verb.device) as (model, folder):
        label = next((known for known in model.classes if str(known) == verb.label), verb.label)
        left = model.forget(label, verb.photos)
    if verb.keep is not None:
        folder.set_keep(verb.keep)
    known = f"{counted(len(model.classes), 'class')} ({', '.join(map(str, model.classes))})"
    say(console, f"{verb.model}  generation {folder.generation}: forgot {verb.label}; {known}")
    say(console, f"left of it: {'; '.join(left)}" if left else "nothing is left of it")
    if kept := [number for number in folder.generations() if number < (folder.generation or 0)]:
        which = f"generation {kept[0]}" if len(kept) == 1 else f"generations {kept[0]} to {kept[-1]}"
        verbs = ("knows", "is", "the model changes again") if len(kept) == 1 else ("know", "are", "more changes follow")
        say(
            console, f"{which} still {verbs[0]} it and {verbs[1]} kept for undo, until {verbs[2]} (--keep 0 drops them)"
        )
