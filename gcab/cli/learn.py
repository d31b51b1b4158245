"""The command line of: learn."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from gcab.cli.verbs import AddVerb, add_formats, add_keep, counted, say, settings_of
from gcab.data.labels import require_folder
from gcab.sizes import Size, parse_size, pixels

if TYPE_CHECKING:
    from gcab.classifier.plan import Plan

EPILOG = """\
A model folder keeps everything: the first lesson creates it, every further one adds the classes of its photos. Photos
of earlier lessons are not needed any more. One class alone, and more photos of known classes, are lessons, too.
Stopped or killed, the same command goes on where it was; one with other photos or options is refused, or drops the
interrupted lesson if it has --give-up.

recipes:
  plain     every photo as it is, 40 epochs: letters, drawings, microscopes, small data (default)
  photos    random cuts, mirroring and RandAugment, 500 epochs of larger batches: as 'gcab train' has it, for
            hundreds of photos a class and a GPU

pretrained encoders (frozen, kept in the model; see docs/pretrained.md):
  FOLDER    as the transformers library saves it: ViT, DeiT, DINOv2, CLIP
  FILE      an ONNX file with one image input
  NAME      such as facebook/dinov2-small, fetched from Hugging Face's hub

examples:
  gcab learn birds.gcab photos/week1/
  gcab learn birds.gcab photos/week1/ --encoder facebook/dinov2-small
  gcab learn birds.gcab photos/week2/ --epochs 80
  gcab learn birds.gcab photos/week3/ --labels week3.csv --dry-run
  gcab learn cars.gcab photos/ --encoder paper --size 32 --recipe photos --epochs 200 --device cuda
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    summary = "teach a model the classes of a folder of photos, a subfolder for each"
    learn = verb("learn", learn_verb, summary, EPILOG)
    learn.add_argument(
        "model", type=Path, metavar="MODEL", help="the model folder, such as birds.gcab; made if missing"
    )
    learn.add_argument("photos", type=Path, metavar="FOLDER", help="a folder with a subfolder of photos per class")
    learn.add_argument(
        "--encoder",
        metavar="NAME|FOLDER|FILE",
        help="tiny (CPU, seconds), small or paper, or a pretrained one, see below; fixed by the first task (tiny)",
    )
    learn.add_argument(
        "--size",
        type=image_size,
        metavar="N|HxW",
        help="pixels, a multiple of 8 from 8 to 384, or height x width; fixed as well (from the photos)",
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
    learn.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")
    learn.add_argument("--skip-unreadable", action="store_true", help="leave out photos that cannot be read")
    add_formats(learn)
    learn.add_argument(
        "--labels", type=Path, metavar="CSV", help="classes from a table of file,label, not from subfolders of FOLDER"
    )
    add_keep(learn)
    learn.add_argument("--dry-run", action="store_true", help="say what would be learned, and how long it would take")
    learn.add_argument(
        "--give-up",
        action="store_true",
        help="drop an interrupted lesson of other photos or options, or a distillation",
    )
    learn.add_argument(
        "--progress", choices=("bar", "json", "none"), default="bar", help="json: one object per line (bar)"
    )
    learn.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change any setting of 'gcab train'"
    )


def image_size(text: str) -> Size:
    """Pixels a side, or height and width."""
    try:
        return parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no size: give pixels, or height x width as 48x96") from None


def learn_verb(verb: argparse.Namespace, console: Console) -> None:
    require_folder(verb.photos, verb.labels)  # before torch is loaded, which takes seconds
    from gcab.classifier.plan import plan
    from gcab.classifier.teaching import teach
    from gcab.cli.lesson_display import LessonDisplay, duration, print_json, subjects
    from gcab.report.model_page import bad_end

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
        "labels": verb.labels,
        "keep": verb.keep,
    }
    if verb.dry_run:
        show_plan(plan(verb.model, verb.photos, **wishes), verb.progress == "json", console)
        return
    if verb.progress == "json":
        teach(verb.model, verb.photos, **wishes, progress=lambda event: print_json(console, event))
        return
    if verb.progress == "none":
        teach(verb.model, verb.photos, **wishes)
        return
    with LessonDisplay(console, verb.model.name) as display:
        result = teach(verb.model, verb.photos, **wishes, progress=display)
    taught = result.taught
    right = (
        ""
        if taught.accuracy is None
        else f", {taught.accuracy:.1f} % of {counted(taught.held_out or 0, 'held-out photo')} right"
    )
    if right and result.optimistic:
        right += " (optimistic: they chose the epoch)"
    error = result.calibration_error
    display.say(
        f"{verb.model.name}  generation {result.generation}: learned {subjects(result.classes, taught.again)} "
        + (f"in {counted(taught.epochs, 'epoch')} " if taught.epochs else "")
        + f"({duration(taught.seconds or 0)}){right}"
        + ("" if error is None else f", calibration error {100 * error:.1f} %")
    )
    if bad := bad_end(taught.accuracy):
        display.say(f"{verb.model.name}  warning: this lesson {bad}")
    if result.verdict:
        display.say(f"{verb.model.name}  {result.verdict}")
    if result.unsure:
        told = [
            f"  {photo.file} ({photo.label} {100 * photo.probability:.0f} %"
            + (")" if photo.guess == photo.label else f", taken for {photo.guess})")
            for photo in result.unsure
        ]
        for line in (f"{verb.model.name}  least sure of:", *told):
            display.say(line)


def show_plan(found: "Plan", as_json: bool, console: Console) -> None:
    """Print what a lesson would do."""
    from gcab.cli.lesson_display import duration, print_json, subjects

    if as_json:
        print_json(console, {"event": "plan", **asdict(found)})
        return
    photos = sum(found.photos.values())
    say(
        console,
        f"{found.model}  generation {found.generation} would learn {subjects(found.classes, found.again)}",
        f"{counted(photos, 'photo')} ({found.held_out} held out): "
        + ", ".join(f"{name} {count}" for name, count in found.photos.items()),
    )
    for sentence in found.skipped:
        say(console, f"left out: {sentence}")
    for note in (*found.beside, found.disputed):
        if note:
            say(console, note)
    if found.mirrors:
        say(console, "an image and its mirror image would count as the same (--set augment.flip=false: not)")
    epochs = f", at most {counted(found.epochs, 'epoch')}" if found.epochs else ""
    say(
        console,
        f"{found.method}, {pixels(found.image_size)}{epochs}, on {found.device}: "
        f"about {duration(found.estimated_seconds)} or less; nothing was written",
    )
