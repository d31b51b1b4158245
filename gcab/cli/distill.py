"""The command line of: distill."""

import argparse
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, add_formats, counted, say, settings_of
from gcab.errors import GcabError
from gcab.records import Accuracy
from gcab.terminal import WorkDisplay

EPILOG = """\
GCAB has a pass for every task; its distilled form, GCAB-Fast, has one pass for all and no projectors, and it can learn
more tasks. Only images of the last task are needed.

A run's model is distilled with the images of its data set and tested beside the original; the result goes to a folder
of its own. It is distilled as the run's profile has it (paper: as the text does); --set changes single settings.
A model in use gets a new generation, which 'gcab undo' takes back. Photos that cannot be read are left out.
Stopped or killed, the same command goes on where it was; one with other images or options is refused, or drops the
interrupted distillation if it has --give-up.

examples:
  gcab distill runs/digits/5/gcab/1-8f930253
  gcab distill runs/cifar100/10/gcab/1-0a1b2c3d --data data/cifar100 --capacity 0.6
  gcab distill birds.gcab photos/week2/
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    distill = verb("distill", distill_verb, "make a model fast: one pass for all tasks (GCAB-Fast)", EPILOG)
    distill.add_argument("model", type=Path, metavar="RUN|MODEL", help="a run folder of gcab, or a model folder")
    distill.add_argument("photos", type=Path, nargs="?", metavar="FOLDER", help="the photos that a model learned last")
    distill.add_argument("--data", type=Path, metavar="DIR", help="the data set of a run (or the photos, as FOLDER)")
    distill.add_argument(
        "--capacity", type=share, default=0.8, metavar="SHARE", help="of the decoder to use; the rest stays free (0.8)"
    )
    distill.add_argument(
        "--labels", type=Path, metavar="CSV", help="classes of a model's photos from a table of file,label"
    )
    distill.add_argument("--out", type=Path, metavar="FOLDER", help="write the model there (RUN/fast-80, or in place)")
    distill.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting, as options.views=4"
    )
    distill.add_argument(
        "--give-up",
        action="store_true",
        help="drop an interrupted distillation of other images or options, or a lesson",
    )
    distill.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")
    add_formats(distill)


def share(text: str) -> float:
    """The type of --capacity."""
    with suppress(ValueError):
        if 0 < (found := float(text)) <= 1:
            return found
    raise argparse.ArgumentTypeError(f"'{text}' is not a share: give a number above 0 and up to 1, such as 0.8")


def distill_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.classifier.model_folder import ModelFolder

    if verb.photos is not None and verb.data is not None:
        raise GcabError("the images are named twice, as FOLDER and with --data: leave one out.")
    images = verb.photos or verb.data
    (of_run if ModelFolder(verb.model).is_run else of_model)(verb, images, console)


def of_run(verb: argparse.Namespace, data: Path | None, console: Console) -> None:
    """Distill a run's model; print a table of both models, what their heads reach alone, and where the new one is."""
    from rich.table import Table

    from gcab.classifier.distillation import METHOD, percent
    from gcab.classifier.distilling_runs import departure, distill_run
    from gcab.model.referee import HEADS
    from gcab.parallel.devices import choose_device
    from gcab.report.logs import check_log
    from gcab.runs.folder import RunFolder

    if verb.labels is not None:
        raise GcabError("the images of a run have their classes from its data set: leave --labels out.")
    run, device = RunFolder.open(verb.model), choose_device(verb.device)
    check_log(run)
    with WorkDisplay(console, f"{verb.model}  distilling") as display:
        figures = distill_run(
            run,
            data,
            verb.capacity,
            verb.out,
            device,
            settings_of(verb.set),
            verb.command,
            watch=display,
            note=display.note,
            give_up=verb.give_up,
        )
    table = Table(box=None, pad_edge=False)
    table.add_column("model")
    for heading in ("ACC_TAG", "ACC_TAW", "parameters", "bytes"):
        table.add_column(heading, justify="right")
    teacher = f"{METHOD} of the run" if figures["teacher"] == METHOD else figures["teacher"]
    for name, measured in ((teacher, figures["gcab"]), (METHOD, figures[METHOD])):
        table.add_row(name, *accuracies(measured), f"{measured['parameters']:,}", f"{measured['bytes']:,}")
        if heads := measured["views"].get(HEADS):
            table.add_row(f"{name}, heads alone", *accuracies(heads))
    console.print(table, highlight=False)
    if sentence := departure(figures):
        say(console, sentence)
    say(
        console,
        f"{figures['images']} images, capacity {percent(verb.capacity)} %, "
        f"KL of the heads {figures['divergence']:.3g}, {figures['seconds']:.1f} s",
        f"Model: {figures['model']}",
    )


def accuracies(measured: Accuracy) -> tuple[str, str]:
    return f"{measured['acc_tag']:.2f} %", f"{measured['acc_taw']:.2f} %"


def of_model(verb: argparse.Namespace, photos: Path | None, console: Console) -> None:
    """Distill a model in use into its next generation, or into a folder of its own."""
    from gcab.classifier.model_folder import ModelFolder

    settings = settings_of(verb.set)
    ModelFolder(verb.model).current()
    if photos is None:
        raise GcabError("photos are missing: name the folder that the model learned last after the model.")
    if not photos.is_dir():
        raise GcabError(f"there is no folder '{photos}': name the one that the model learned last.")
    from gcab.classifier.distillation import percent  # with torch, which takes seconds
    from gcab.classifier.distilling import distill_model

    with WorkDisplay(console, f"{verb.model}  distilling") as display:
        made = distill_model(
            verb.model,
            photos,
            verb.capacity,
            verb.out,
            verb.device,
            settings,
            watch=display,
            note=display.note,
            give_up=verb.give_up,
            labels=verb.labels,
        )
    where = str(verb.out) if made.generation is None else f"{verb.model}  generation {made.generation}"
    say(
        console,
        f"{where}: one pass for {counted(made.tasks, 'task')}, {counted(made.classes, 'class')}, "
        f"capacity {percent(verb.capacity)} %, {made.bytes[0]:,} -> {made.bytes[1]:,} bytes, "
        f"the same answer as before for {made.agreed:.1f} % of these photos, {made.right[1]:.1f} % of them right "
        f"({made.right[0]:.1f} % before)",
    )
