"""The command line of: report."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    report = verb("report", report_verb, "write one self-contained HTML page (and PNG, SVG figures) about runs")
    report.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders, or folders of runs")
    report.add_argument("--out", type=Path, metavar="FILE", help="the page (report.html in the run, or here)")


def report_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.report.figures import save_figures
    from gcab.report.logs import read_runs
    from gcab.report.report import write_report

    runs = read_runs(verb.runs)
    page = verb.out or (runs[0].report if len(runs) == 1 else Path("report.html"))
    figures = runs[0].figures if len(runs) == 1 and verb.out is None else page.with_name(page.stem + "-figures")
    write_report(runs, page)
    saved = save_figures(runs, figures)
    console.print(f"{page}\n{len(saved)} figures in {figures}", highlight=False, soft_wrap=True)
