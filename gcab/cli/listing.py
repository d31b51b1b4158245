"""The command line of: list."""

import argparse
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from gcab.cli.verbs import AddVerb

if TYPE_CHECKING:
    from gcab.data.dataset import Dataset


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    listing = verb("list", list_verb, "list what is there: methods, scenarios or data sets")
    listing.add_argument("what", choices=("methods", "scenarios", "datasets"))


def described(entry: "Dataset") -> str:
    """What it is, what it needs and where to get it, a line each."""
    needs = f"--data DIR: {entry.needs}" if entry.needs_root and entry.needs else ""
    return "\n".join(filter(None, (entry.summary, needs, entry.address)))


def list_verb(verb: argparse.Namespace, console: Console) -> None:
    from rich.table import Table

    from gcab.config import scenario_preset
    from gcab.data.registry import DATASETS, SCENARIOS
    from gcab.methods.registry import methods

    if verb.what == "methods":
        rows = [(name, method.summary) for name, method in sorted(methods().items())]
    elif verb.what == "datasets":
        rows = [(entry.name, described(entry)) for entry in DATASETS.values()]
    else:
        presets = [(name, scenario_preset(name)) for name in SCENARIOS]
        rows = [
            (name, f"{preset['scenario.tasks']} tasks, images {preset['scenario.image_size']} pixels wide")
            for name, preset in presets
        ]
        rows.append(("folder/N", "your own images in N tasks (--data DIR)"))
    table = Table(box=None, show_header=False)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
