"""The command line of: report."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, new_file, say
from gcab.errors import GcabError

EPILOG = """\
The page of a model has what it knows about itself: accuracy of each lesson when learned and as estimated now, what the
eye should confuse, calibration, the bytes of each part, and its history. 'gcab test' measures it on labelled photos.

examples:
  gcab report birds.gcab
  gcab report runs/digits/5 --out digits.html
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    summary = "write one self-contained HTML page about a model, or about runs (with PNG and SVG figures)"
    report = verb("report", report_verb, summary, EPILOG)
    meaning = "a model folder; or run folders, or folders of runs"
    report.add_argument("runs", type=Path, nargs="+", metavar="RUN|MODEL", help=meaning)
    default = "the page (MODEL-report.html here; report.html in the run, or here)"
    report.add_argument("--out", type=new_file, metavar="FILE", help=default)


def report_verb(verb: argparse.Namespace, console: Console) -> None:
    models = [path for path in verb.runs if is_model(path)]
    if models:
        if len(verb.runs) > 1:
            raise GcabError(f"{models[0]} is a model: a page is about one model, or about runs.")
        report_model(models[0], verb.out, console)
        return
    for path in verb.runs:
        if not path.exists():
            raise GcabError(f"there is no model and no run folder {path}: check the path.")
    from gcab.report.figures import save_figures
    from gcab.report.logs import read_runs
    from gcab.report.report import write_report

    runs = read_runs(verb.runs)
    page = verb.out or (runs[0].report if len(runs) == 1 else Path("report.html"))
    figures = runs[0].figures if len(runs) == 1 and verb.out is None else page.with_name(page.stem + "-figures")
    write_report(runs, page)
    saved = save_figures(runs, figures)
    console.print(f"{page}\n{len(saved)} figures in {figures}", highlight=False, soft_wrap=True)


def is_model(path: Path) -> bool:
    """Whether a folder is a model in use, not one of runs."""
    return not (path / "config.json").exists() and ((path / "model.json").exists() or any(path.glob("generation-*")))


def report_model(path: Path, out: Path | None, console: Console) -> None:
    from gcab.classifier.facts import facts_of
    from gcab.report.model_page import write_model_page

    page = write_model_page(facts_of(path), None, out or Path(f"{path.resolve().stem}-report.html"))
    say(console, str(page))
