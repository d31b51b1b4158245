"""The command line of: compare."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    compare = verb("compare", compare_verb, "rank runs in a table: mean and deviation over seeds")
    compare.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders, or folders of runs")


def compare_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.report.logs import read_runs
    from gcab.report.tables import comparisons

    for table in comparisons(read_runs(verb.runs)):
        console.print(table)
