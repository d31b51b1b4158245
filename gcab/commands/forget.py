"""The command line of what exact sums make possible: forget and merge."""

import argparse
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from gcab.commands.verbs import AddVerb, say
from gcab.errors import GcabError

FORGET_EPILOG = """\
A model of the method eye is afterwards, bit for bit, one that never saw the class. It needs all photos of the class for
that, as it keeps the sums of all classes together; photos that were held out, or never learned, may be among them.
Taught with --set options.forgettable=true it keeps sums by class, and needs none.

A model of gcab loses the class, its mean and its part in the eye; what it says is left, only training anew removes.

examples:
  gcab forget birds.gcab magpie --photos photos/week2/
  gcab undo birds.gcab                              the model knows magpies again
"""

MERGE_EPILOG = """\
For models of the method eye that were taught at different places, with the same settings. Neither place sees the photos
of the other. The result is, bit for bit, the first model taught what the second one was; photos of classes that both
know add up.

examples:
  gcab merge north.gcab south.gcab                  the next generation of north.gcab
  gcab merge north.gcab south.gcab --out all.gcab   a model of its own
"""


def register(verb: AddVerb) -> None:
    """Add the verbs of this file."""
    forget = verb("forget", forget_verb, "take a class out of a model, as its next generation", FORGET_EPILOG)
    forget.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    forget.add_argument("label", metavar="CLASS", help="the name of the class")
    forget.add_argument("--photos", type=Path, metavar="DIR", help="the photos of the class, or a folder with theirs")
    merge = verb("merge", merge_verb, "add what another model has learned to a model, exactly", MERGE_EPILOG)
    merge.add_argument("model", type=Path, metavar="A", help="a model folder")
    merge.add_argument("other", type=Path, metavar="B", help="another one, which does not change")
    merge.add_argument(
        "--out", type=Path, metavar="C", help="write a model of its own there (the next generation of A)"
    )
    for added in (forget, merge):
        added.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (auto)")


def forget_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.learner import ContinualClassifier
    from gcab.model_folder import ModelFolder

    folder = ModelFolder(verb.model)
    folder.current()
    with folder.locked():
        model = ContinualClassifier.load(folder.path, verb.device)
        label = next((known for known in model.classes if str(known) == verb.label), verb.label)
        left = model.forget(label, verb.photos)
        generation = folder.write(model.save)
    names = ", ".join(map(str, model.classes))
    say(console, f"{verb.model}  generation {generation}: forgot {verb.label}; {len(model.classes)} classes ({names})")
    say(console, f"left of it: {'; '.join(left)}" if left else "nothing is left of it")
    say(console, f"generation {generation - 1} still knows it and is kept for undo, until the model changes again")


def merge_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.learner import ContinualClassifier
    from gcab.model_folder import ModelFolder

    folder, target = ModelFolder(verb.model), ModelFolder(verb.out or verb.model)
    folder.current()
    if verb.out is not None and target.generation is not None:
        raise GcabError(f"{verb.out} holds a model already: choose another folder.")
    if verb.other.resolve() == verb.model.resolve():
        raise GcabError(f"{verb.model} cannot be merged with itself: its photos would count twice.")
    with target.locked() if verb.out is None else nullcontext():
        model, other = (ContinualClassifier.load(path, verb.device) for path in (folder.path, verb.other))
        before = len(model.classes)
        model.merge(other)
        generation = target.write(model.save)
    added = len(model.classes) - before
    say(
        console,
        f"{verb.out or verb.model}  generation {generation}: {before} + {added} classes "
        f"({', '.join(map(str, model.classes))}); {len(other.classes) - added} known to both",
    )
