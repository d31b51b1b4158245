"""The command line of: demo."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    demo = verb("demo", demo_verb, "train GCAB and its baselines on handwritten digits and compare (about a minute)")
    demo.add_argument("--seed", type=int, default=1)
    demo.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs)")


def demo_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.cli.demonstration import run_demo

    run_demo(verb.runs, console, verb.seed)
