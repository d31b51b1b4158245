"""The command line of: learn, and of what looks after a model folder (info, undo, audit)."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from gcab.commands.verbs import AddVerb, say, settings_of

if TYPE_CHECKING:
    from gcab.audit import Audit

LEARN_EPILOG = """\
A model folder keeps everything: the first lesson creates it, every further one adds the classes of its photos. Photos
of earlier lessons are not needed any more. Stopped or killed, the same command goes on where it was; one with other
photos or options is refused, or drops the interrupted lesson if it has --give-up.

recipes:
  plain     every photo as it is, 40 epochs: letters, drawings, microscopes, small data (default)
  photos    random cuts, mirroring and RandAugment, 500 epochs of larger batches: as 'gcab train' has it, for
            hundreds of photos a class and a GPU

examples:
  gcab learn birds.gcab photos/week1/
  gcab learn birds.gcab photos/week2/ --epochs 80
  gcab learn cars.gcab photos/ --encoder paper --size 32 --recipe photos --epochs 200 --device cuda
"""


def register(verb: AddVerb) -> None:
    """Add the verbs of this file."""
    summary = "teach a model the classes of a folder of photos, a subfolder for each"
    learn = verb("learn", learn_verb, summary, LEARN_EPILOG)
    learn.add_argument(
        "model", type=Path, metavar="MODEL", help="the model folder, such as birds.gcab; made if missing"
    )
    learn.add_argument("photos", type=Path, metavar="FOLDER", help="a folder with a subfolder of photos per class")
    learn.add_argument(
        "--encoder", metavar="NAME", help="tiny (CPU, seconds), small or paper; fixed by the first task (tiny)"
    )
    learn.add_argument(
        "--size", type=int, metavar="N", help="pixels, a multiple of 8 from 8 to 224; fixed as well (from the photos)"
    )
    learn.add_argument("--recipe", metavar="NAME", help="plain or photos, see below (as before, at first plain)")
    learn.add_argument("--epochs", type=int, metavar="N", help="at most this many (as before, at first the recipe's)")
    learn.add_argument(
        "--held-out",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="of each class, not trained on: says when to stop and how far to trust the model (0.2)",
    )
    learn.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help="stop after N epochs without a better held-out accuracy, 0: never (a quarter of all)",
    )
    learn.add_argument("--seed", type=int, help="decides every random choice (as before, at first 1)")
    learn.add_argument("--method", help="see: gcab list methods; fixed by the first task (gcab)")
    learn.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (auto)")
    learn.add_argument("--skip-unreadable", action="store_true", help="leave out photos that cannot be read")
    learn.add_argument("--give-up", action="store_true", help="drop an interrupted lesson of other photos or options")
    learn.add_argument(
        "--progress", choices=("bar", "json", "none"), default="bar", help="json: one object per line (bar)"
    )
    learn.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change any setting of 'gcab train'"
    )

    info = verb("info", info_verb, "show what a model has learned: tasks, classes, accuracy, capacity left, size")
    undo = verb(
        "undo", undo_verb, "take a model back to before its last change: a task, a distillation, a class forgotten"
    )
    audit = verb("audit", audit_verb, "list everything a model stores: every tensor, its bytes and its purpose")
    for added in (info, undo, audit):
        added.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    for added in (info, audit):
        added.add_argument("--json", action="store_true", help="print JSON")


def learn_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.commands.lesson_display import LessonDisplay, duration, print_json, subjects
    from gcab.teaching import teach

    wishes = {
        "method": verb.method,
        "encoder": verb.encoder,
        "size": verb.size,
        "recipe": verb.recipe,
        "epochs": verb.epochs,
        "held_out": verb.held_out,
        "patience": verb.patience,
        "seed": verb.seed,
        "device": verb.device,
        "settings": settings_of(verb.set),
        "skip_unreadable": verb.skip_unreadable,
        "give_up": verb.give_up,
    }
    if verb.progress == "json":
        teach(verb.model, verb.photos, **wishes, progress=lambda event: print_json(console, event))
        return
    if verb.progress == "none":
        teach(verb.model, verb.photos, **wishes)
        return
    with LessonDisplay(console, verb.model.name) as display:
        result = teach(verb.model, verb.photos, **wishes, progress=display)
    taught = result.taught
    right = "" if taught.accuracy is None else f", {taught.accuracy:.1f} % of {taught.held_out} held-out photos right"
    if right and taught.epochs:
        right += " (optimistic: they chose the epoch)"
    error = result.calibration_error
    display.say(
        f"{verb.model.name}  generation {result.generation}: learned {subjects(result.classes, taught.again)} "
        + (f"in {taught.epochs} epochs " if taught.epochs else "")
        + f"({duration(taught.seconds or 0)}){right}"
        + ("" if error is None else f", calibration error {100 * error:.1f} %")
    )


def info_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.commands.lesson_display import print_json
    from gcab.overview import overview

    facts = overview(verb.model)
    if verb.json:
        print_json(console, facts, indent=1)
    else:
        show_overview(facts, console)


def show_overview(facts: dict[str, Any], console: Console) -> None:
    """Facts for people."""
    from rich.table import Table

    from gcab.audit import keeping
    from gcab.calibration import FEWEST
    from gcab.commands.lesson_display import amount, subjects

    def known(value: Any, unit: str = "") -> str:
        return "-" if value is None else f"{value}{unit}"

    encoder, calibration = facts["encoder"], facts["calibration"]
    network = "no network: nothing is trained"
    if encoder is not None:
        shape = f"width {encoder['width']}, {encoder['blocks']} blocks, {encoder['heads']} heads"
        network = f"encoder {encoder['name'] or 'of its own'} ({shape})"
    before = [number for number in facts["generations"] if number < facts["generation"]]
    kept = f", generation {before[-1]} kept for undo" if before else ""
    say(
        console,
        f"{facts['model']}  {facts['method']}, generation {facts['generation']}{kept}, written by gcab {facts['gcab']}",
    )
    say(
        console,
        f"{facts['classes']} classes in {len(facts['tasks'])} tasks; images {facts['image_size']} x "
        f"{facts['image_size']} pixels; {network}",
    )
    table = Table(box=None, pad_edge=False)
    epochs = [] if encoder is None else ["epochs"]
    for heading in ("task", "learned", "classes", "photos", "held out", "accuracy", *epochs):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("names")
    for task in facts["tasks"]:
        accuracy = None if task["accuracy"] is None else round(task["accuracy"], 1)
        when = "-" if task["when"] is None else task["when"][:16].replace("T", " ")
        row = (task["index"], when, task["classes"], known(task["images"]), known(task["held_out"]))
        about = escape(subjects(task["names"], task["again"]))
        more = (known(accuracy, " %"), *(known(task[name]) for name in epochs), about)
        table.add_row(*map(str, (*row, *more)))
    console.print(table, highlight=False)
    if facts["capacity_left"]:
        say(
            console,
            "capacity left: "
            + ", ".join(f"{100 * share:.0f} % {name}" for name, share in facts["capacity_left"].items()),
        )
    error = calibration["expected_calibration_error"]
    if calibration["images"]:
        told = "not measured (the last task has too few)" if error is None else f"{100 * error:.1f} %"
        flags = "" if calibration["tells_unknown"] else f", below {FEWEST} no photo is flagged as unknown"
        say(console, f"calibrated on {calibration['images']} held-out photos{flags}; calibration error: {told}")
    else:
        say(console, "not calibrated: the last lesson held out no photos; nothing is flagged as unknown")
    say(console, f"size: {amount(facts['bytes']['model'])}, the whole folder {amount(facts['bytes']['folder'])}")
    images = facts["images"]
    if images["count"]:
        say(console, keeping(facts["method"], images["count"], images["bytes"]))
    if facts["interrupted"]:
        waiting, epoch = ", ".join(facts["interrupted"]["classes"]), facts["interrupted"]["epoch"]
        after = f" (after epoch {epoch})" if epoch else ""
        say(console, f"a lesson is under way, or waits to be continued: {waiting}{after}")


def undo_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.model_folder import ModelFolder

    folder = ModelFolder(verb.model)
    generation = folder.undo()
    names = [name for task in folder.description()["tasks"] for name in task]
    say(console, f"{verb.model}  back to generation {generation}: {len(names)} classes ({', '.join(names)})")


def audit_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.audit import audit
    from gcab.commands.lesson_display import print_json

    found = audit(verb.model)
    if verb.json:
        print_json(console, found.to_dict(), indent=1)
    else:
        show_audit(found, console)


def show_audit(found: "Audit", console: Console) -> None:
    """An audit for people: every tensor, then what they are in all."""
    from rich.table import Table

    from gcab.audit import FEW
    from gcab.commands.lesson_display import amount

    table = Table(box=None, pad_edge=False)
    table.add_column("bytes", justify="right")
    for heading in ("shape", "kind", "tensor", "purpose"):
        table.add_column(heading, overflow="fold")
    for stored in found.tensors:
        shape = " x ".join(map(str, stored.shape)) or "1"
        table.add_row(str(stored.bytes), shape, stored.dtype, escape(stored.name), escape(stored.purpose))
    console.print(table, highlight=False)
    total = sum(stored.bytes for stored in found.tensors)
    say(console, f"{len(found.tensors)} tensors, {amount(total)} in all.")
    for name, size in found.files.items():
        inside = ""
        if beside := found.beside.get(name):
            inside = f", {beside.purpose}: {beside.tensors} tensors, {beside.images or 'no'} images"
        say(console, f"{name}: {amount(size)}{inside}")
    if found.strangers:
        names = ", ".join(found.strangers)
        console.print(f"[yellow]not of this model:[/] {escape(names)}", highlight=False, soft_wrap=True)
    images = found.images + sum(beside.images for beside in found.beside.values())
    if images:
        console.print(f"[bold red]{images} stored images are among them.[/]", highlight=False)
    if found.pictures:
        names = ", ".join(found.pictures)
        console.print(f"[bold red]Files that look like images:[/] {escape(names)}", highlight=False, soft_wrap=True)
    if found.few:
        few = ", ".join(f"{name} ({count})" for name, count in found.few.items())
        say(console, f"Means and sums over fewer than {FEW} photos tell much of each: {few}")
    if found.closed:
        say(console, f"Not looked into: {', '.join(found.closed)}")
    if not images and not found.pictures:
        say(console, "No image is among the rest." if found.closed else "No image is among them.")
