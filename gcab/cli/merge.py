"""The command line of: merge."""

import argparse
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, say
from gcab.errors import GcabError

EPILOG = """\
For models of the method eye that were taught at different places, with the same settings. Neither place sees the photos
of the other. The result is, bit for bit, the first model taught what the second one was; photos of classes that both
know add up.

examples:
  gcab merge north.gcab south.gcab                  the next generation of north.gcab
  gcab merge north.gcab south.gcab --out all.gcab   a model of its own
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    merge = verb("merge", merge_verb, "add what another model has learned to a model, exactly", EPILOG)
    merge.add_argument("model", type=Path, metavar="A", help="a model folder")
    merge.add_argument("other", type=Path, metavar="B", help="another one, which does not change")
    merge.add_argument(
        "--out", type=Path, metavar="C", help="write a model of its own there (the next generation of A)"
    )
    merge.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")


def merge_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.classifier.learner import ContinualClassifier
    from gcab.classifier.model_folder import ModelFolder

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
