"""The command line of: test."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from gcab.cli.verbs import AddVerb, add_formats, counted, new_file, require_model, say, say_table
from gcab.data.labels import require_folder

WORST = 5  # classes that are named

EPILOG = """\
Photos that the model has not learned from, a subfolder for each class. Folders of classes that it does not know are
used to measure how well it tells them by the unknown score. The page has figures and tables, and no photo.

examples:
  gcab test birds.gcab photos/test/
  gcab test birds.gcab photos/ --labels test.csv --out test.html
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    test = verb(
        "test", test_verb, "measure a model on labelled photos: accuracy, confusion, calibration; a page", EPILOG
    )
    test.add_argument("model", type=Path, metavar="MODEL", help="a model folder, or a run")
    test.add_argument("photos", type=Path, metavar="FOLDER", help="a folder with a subfolder of photos per class")
    test.add_argument(
        "--labels", type=Path, metavar="CSV", help="classes from a table of file,label, not from subfolders"
    )
    test.add_argument("--out", type=new_file, metavar="FILE", help="the page (MODEL-test.html, here)")
    test.add_argument("--json", action="store_true", help="print JSON")
    test.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")
    add_formats(test)


def test_verb(verb: argparse.Namespace, console: Console) -> None:
    require_folder(verb.photos, verb.labels)  # before torch is loaded, which takes seconds
    require_model(verb.model)
    from gcab.classifier.facts import facts_of
    from gcab.classifier.model import Classifier
    from gcab.classifier.testing import measure
    from gcab.classifier.wishes import files_of
    from gcab.cli.lesson_display import print_json
    from gcab.report.model_page import write_model_page
    from gcab.terminal import WorkDisplay

    files, names = files_of(verb.photos, verb.labels)
    model = Classifier.load(verb.model, device=verb.device)
    with WorkDisplay(Console(stderr=True) if verb.json else console, f"{verb.model}  testing") as watch:
        measured = measure(model, files, names, watch)
    page = write_model_page(facts_of(verb.model), measured, verb.out or Path(f"{verb.model.resolve().stem}-test.html"))
    if verb.json:
        print_json(console, {**measured, "page": str(page)}, indent=1)
    else:
        show_measured(measured, console)
        say(console, str(page))


def show_measured(measured: dict[str, Any], console: Console) -> None:
    """The numbers to know, and the classes that need more photos."""
    from gcab.classifier.photos import left_out

    say(
        console,
        f"{measured['accuracy']:.1f} % of {counted(measured['photos'], 'photo')} right; {measured['confidence']:.1f} % "
        f"sure on average, calibration error {100 * measured['calibration_error']:.1f} %",
    )
    lessons = [value for value in measured["lessons"] if value is not None]
    if len(lessons) > 1:
        told = ", ".join("-" if value is None else f"{value:.1f} %" for value in measured["lessons"])
        say(console, f"lesson by lesson: {told}")
    asked = [entry for entry in measured["classes"] if entry["photos"]]
    worst = sorted(asked, key=lambda entry: entry["accuracy"])[:WORST]
    rows = [["class", "photos", "right", "else mostly taken for"]]
    for entry in worst:
        other = "-" if entry["taken_for"] is None else measured["names"][entry["taken_for"]]
        rows.append([entry["name"], str(entry["photos"]), f"{entry['accuracy']:.1f} %", other])
    say_table(console, rows, left=(0, 3))
    if len(asked) > WORST:
        say(console, f"{counted(len(asked) - WORST, 'class')} not shown, none of which does worse")
    if measured["unknown"]:
        found = measured["unknown"]
        say(
            console,
            f"photos of unknown classes: {found['photos']}, told from known ones with AUROC {found['auroc']:.2f}; "
            f"{found['flagged']:.0f} % of them flagged, and {found['known_flagged']:.0f} % of the known",
        )
    if measured["skipped"]:
        say(console, left_out(measured["skipped"]))
