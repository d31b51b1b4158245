"""The command line of: evaluate."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from gcab.cli.verbs import AddVerb, add_views, say
from gcab.errors import GcabError

if TYPE_CHECKING:
    from gcab.runs.testing import Tested

EPILOG = """\
--heads says why a task is not known: how often and how sure every head answers for images of its own task and for
others, what part of the mistakes is the task, and whether parts of the method err together. All images are test images:
to choose a setting by them, hold some of the training images out (gcab train --scenario.validation 0.1).

examples:
  gcab evaluate runs/digits/5/gcab/1-8f930253
  gcab evaluate runs/cifar100/10/gcab/1-0a1b2c3d --data data/cifar100 --heads
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    evaluate = verb(
        "evaluate", evaluate_verb, "test a run's model again and compare with what the run recorded", EPILOG
    )
    evaluate.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    evaluate.add_argument("--data", type=Path, metavar="DIR", help="folder of the data set")
    evaluate.add_argument("--heads", action="store_true", help="also who answers for whose images, and how sure")
    add_views(evaluate)
    evaluate.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")


def evaluate_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.evaluation.metrics import ACCURACIES
    from gcab.parallel.devices import choose_device
    from gcab.report.logs import check_log
    from gcab.runs.folder import RunFolder
    from gcab.runs.testing import evaluate_run

    run = RunFolder.open(verb.run)
    check_log(run)
    if verb.heads and len(run.tasks) < 2:
        raise GcabError("--heads compares tasks, and this run has one: leave it out.")
    tested = evaluate_run(run, verb.data, choose_device(verb.device), verb.views)
    recorded = "recorded" if verb.views == 1 else "recorded with one view"
    for name in ACCURACIES:
        before = "nothing" if tested.recorded[name] is None else f"{tested.recorded[name]:.2f} %"
        say(console, f"{name}: {tested.now[name]:.2f} % ({recorded} {before})")
    for part, alone in tested.parts.items():
        say(console, f"{part}: {' / '.join(f'{alone[name]:.2f}' for name in ACCURACIES)} %")
    if verb.heads:
        show_heads(tested, console)


def show_heads(tested: "Tested", console: Console) -> None:
    """Tables of the heads, of their rivals and of the mistakes."""
    from gcab.evaluation.heads import either, errors, heads, rivals
    from gcab.model.referee import HEADS, STATISTICS
    from gcab.runs.testing import WHOLE

    if len(tested.classes) < 2:
        raise GcabError("--heads compares tasks, and one has been learned so far: leave it out, or train on.")
    decisions, about = tested.decisions, (tested.labels, tested.classes)
    decided = decisions.get(HEADS, decisions[WHOLE])
    table = Table(box=None, pad_edge=False)
    for heading in ("head", "own images", "others' images", "AUROC", "own found", "wins"):
        table.add_column(heading, justify="right")
    for number, head in enumerate(heads(decided, *about), start=1):
        own, others = (f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in (head.own, head.others))
        table.add_row(f"{number}", own, others, f"{head.auroc:.2f}", f"{head.found:.1f} %", f"{head.won:.1f} %")
    console.print("\nLargest logit of each head, and the images that it wins:", highlight=False)
    console.print(table, highlight=False)
    met = rivals(decided, *about)
    say(
        console,
        "",
        f"An image has {met.positive:.1f} of {len(tested.classes) - 1} other heads with a logit above 0. "
        f"The largest of theirs is {met.largest:.2f}; the true class has {met.true:.2f}, and leads its own head by "
        f"{met.lead:.2f}.",
    )
    for name, logits in decisions.items():
        missed = errors(logits, *about)
        say(
            console,
            f"{name}: {missed.task:.1f} % to a wrong task ({missed.told:.1f} % of them right, had the task been told), "
            f"{missed.within:.1f} % to a wrong class of the right task",
        )
    if HEADS in decisions and STATISTICS in decisions:
        both, any_of_them = either(decisions[HEADS], decisions[STATISTICS], *about)
        say(
            console,
            f"the task is found by both {HEADS} and {STATISTICS}: {both:.1f} %, by at least one: {any_of_them:.1f} %",
        )
