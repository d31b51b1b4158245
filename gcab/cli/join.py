"""The command line of: join."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, counted, next_generation, say

EPILOG = """\
Photos of B count as photos of A from now on. A model of the method eye is afterwards the one that learned them as one
class: its sums add up, exactly. In a model of gcab that is so for the eye and the class statistics. The network's heads
cannot be put together like that: if both classes are of one lesson, the answer for A is the mean of both; if not, the
head of A answers alone. Teach more photos, or train anew, if that is not enough.

examples:
  gcab join birds.gcab tit "great tit"     one class, tit, of the two
  gcab undo birds.gcab                     two classes again
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    join = verb("join", join_verb, "make one class of two, as the next generation of a model", EPILOG)
    join.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    join.add_argument("label", metavar="A", help="the class that stays")
    join.add_argument("other", metavar="B", help="the class that becomes a part of it")
    join.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")


def join_verb(verb: argparse.Namespace, console: Console) -> None:
    with next_generation(verb.model, verb.device) as (model, folder):
        left = model.join(verb.label, verb.other)
    names = ", ".join(map(str, model.classes))
    say(
        console,
        f"{verb.model}  generation {folder.generation}: {verb.other} is part of {verb.label}; "
        f"{counted(len(model.classes), 'class')} ({names})",
    )
    say(
        console,
        f"not as if learned as one: {'; '.join(left)}" if left else "exactly as if both had been learned as one class",
    )
