"""The command line of: list."""

import argparse

from rich.console import Console
from rich.markup import escape

from gcab.cli.verbs import AddVerb


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    listing = verb("list", list_verb, "list what is there: methods, scenarios or data sets")
    listing.add_argument("what", choices=("methods", "scenarios", "datasets"))


def list_verb(verb: argparse.Namespace, console: Console) -> None:
    from rich.table import Table

    from gcab.config import scenario_preset
    from gcab.data.registry import DATASETS, SCENARIOS
    from gcab.methods.registry import methods

    if verb.what == "methods":
        rows = [(name, method.summary) for name, method in sorted(methods().items())]
    elif verb.what == "datasets":
        rows = [(entry.name, entry.summary) for entry in DATASETS.values()]
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
