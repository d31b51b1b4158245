"""The command line of: figure."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from gcab.cli.engines import add_engine, check_engine, elsewhere, engine_of
from gcab.cli.verbs import AddVerb, settings_of
from gcab.errors import GcabError, unknown

if TYPE_CHECKING:
    from gcab.paper.jobs import Job
    from gcab.runs.folder import RunFolder

EPILOG = """\
A figure's recipe names its runs. What is missing of them is trained, distilled or timed, one after another, and what
was stopped is continued by the same command; then pictures, table and numbers are written to a folder, and the logs to
the folder runs beside it, which all figures in results share, or inside it where --out is elsewhere.
With RUN folders given nothing is trained: they alone are drawn. On a GPU with NVIDIA's multi-process service started
(nvidia-cuda-mps-control -d) --at-once 3 does a quarter more in the same time.

examples:
  gcab figure main --data DIR --dry-run                       which runs, and how many steps
  gcab figure ablation --data DIR --only 1,2,joint            some of them now, the others later
  gcab figure hyperparameters --data DIR --at-once 3          three runs side by side
  gcab figure hyperparameters --data DIR --on ray --gpu-share 0.33    on a Ray cluster, three on each GPU
  gcab figure hyperparameters --data DIR --epochs 40          another schedule, labelled as such
  gcab figure ablation --scenario digits/5                    on data that is included
  gcab figure table-cifar --data DIR --buffers 200            every method, the larger memories later
  gcab figure table-cifar --data DIR --methods er,derpp --seeds 1,2,3
  gcab figure table-cifar --data DIR --encoder resnet18       as most of the paper's rows were published
  gcab figure distillation runs/cifar100/10/gcab/1-0a1b2c3d   from a run that is there
"""
RECIPE_ONLY = (
    "only",
    "methods",
    "buffers",
    "epochs",
    "scenario",
    "set",
    "dry_run",
    "at_once",
    "on",
)  # arguments about runs to be made


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    from gcab.paper.recipes import RECIPES

    figure = verb("figure", figure_verb, "make a table or figure of the paper, with the runs it needs", EPILOG)
    figure.add_argument("name", metavar="NAME", help=", ".join(RECIPES))
    figure.add_argument("given", type=Path, nargs="*", metavar="RUN", help="draw these run folders; train nothing")
    figure.add_argument("--data", type=Path, metavar="DIR", help="folder of the data set (not for digits)")
    figure.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs)")
    figure.add_argument("--out", type=Path, metavar="DIR", help="where to write, over what is there (results/NAME-...)")
    figure.add_argument("--scenario", nargs="+", default=[], metavar="NAME", help="instead of the recipe's own")
    figure.add_argument("--epochs", type=int, metavar="N", help="a task, instead of the recipe's own")
    figure.add_argument("--seeds", default="1", metavar="N,...", help="run every row with each of these (1)")
    figure.add_argument("--only", metavar="ROW,...", help="rows to run now: numbers, or parts of names")
    figure.add_argument("--methods", default="", metavar="NAME,...", help="run rows of these methods now")
    figure.add_argument(
        "--buffers", default="", metavar="N,...", help="of methods that store images, these memories now"
    )
    figure.add_argument("--encoder", metavar="NAME", help="resnet18: of table-cifar, the table with published settings")
    figure.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of all rows")
    add_engine(figure)
    figure.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")
    figure.add_argument("--dry-run", action="store_true", help="list the runs and their steps; run and write nothing")


def figure_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.paper.recipes import RECIPES

    if verb.name not in RECIPES:
        raise unknown("figure", verb.name, RECIPES)
    if verb.encoder:
        verb.name = on_encoder(verb.name, verb.encoder)
    check_engine(verb)
    if elsewhere(verb) and RECIPES[verb.name].timed:
        raise GcabError(f"the figure {verb.name} is about time: runs side by side would slow each other down.")
    if verb.out is not None and verb.out.exists() and not verb.out.is_dir():
        raise GcabError(f"--out {verb.out} is a file: give a folder.")
    runs = given_runs(verb) if verb.given else made_runs(verb, console)
    if runs is None:
        return
    from gcab.paper.publishing import publish

    out = verb.out or own_folder(verb.name, runs)
    console.print(publish(verb.name, runs, out, verb.command))
    console.print(f"Folder: {out}", highlight=False, markup=False, soft_wrap=True)


def on_encoder(name: str, encoder: str) -> str:
    """The name of the figure with the same rows on another encoder, which some have."""
    from gcab.paper.recipes import RECIPES

    if (other := f"{name}-{encoder}") not in RECIPES:
        raise GcabError(f"the figure {name} is not made with --encoder {encoder}: table-cifar is, with resnet18.")
    return other


def given_runs(verb: argparse.Namespace) -> "list[RunFolder]":
    """The runs on the command line; their models are timed where the figure is about time."""
    from gcab.paper.recipes import RECIPES
    from gcab.report.logs import read_runs

    given = {option: getattr(verb, option) for option in RECIPE_ONLY}
    for option, value in {**given, "seeds": verb.seeds != "1"}.items():
        if value:
            raise GcabError(f"--{option.replace('_', '-')} is for a recipe's own runs: leave out the RUN folders.")
    runs = read_runs(verb.given)
    if RECIPES[verb.name].timed:
        from gcab.paper.timing import time_models
        from gcab.parallel.devices import choose_device

        for run in runs:
            if (run.model / "model.json").exists():
                time_models(run, choose_device(verb.device))
    return runs


def made_runs(verb: argparse.Namespace, console: Console) -> "list[RunFolder] | None":
    """The recipe's finished runs, after those asked for are run; None for a dry run."""
    from gcab.paper.jobs import chosen, of_methods, plan, run_jobs, say
    from gcab.paper.recipes import RECIPES
    from gcab.parallel.devices import choose_device
    from gcab.report.logs import check_log

    seeds = whole_numbers("--seeds", verb.seeds, "1,2,3")
    jobs = plan(RECIPES[verb.name], verb.runs, verb.scenario, seeds, verb.epochs, settings_of(verb.set))
    methods = list(filter(None, map(str.strip, verb.methods.split(","))))
    buffers = whole_numbers("--buffers", verb.buffers, "200,500") if verb.buffers else ()
    named = of_methods(jobs, methods, buffers)
    now = [job for job in chosen(jobs, verb.only) if job in named]
    if not now:
        raise GcabError("no run is of all of --only, --methods and --buffers: see the names with --dry-run.")
    if verb.dry_run:
        show(jobs, now, verb.data, console)
        return None
    if elsewhere(verb):
        from gcab.paper.side_by_side import run_side_by_side

        run_side_by_side(now, verb.data, verb.device, console, verb.command, engine_of(verb), verb.tries)
    else:
        run_jobs(now, verb.data, choose_device(verb.device), console, verb.command)
    for number, job in enumerate(jobs, start=1):
        if job.state() != "finished":
            say(console, f"not done yet: {number}, {job.name}: {job.state()}")
    runs = [run for job in jobs if (run := job.run()) is not None and run.final()]
    for run in runs:
        check_log(run)
    return runs


def own_folder(name: str, runs: "Sequence[RunFolder]") -> Path:
    """A figure's default folder; a figure that is there may be extended or drawn again, but not overwritten."""
    from gcab.paper.publishing import default_folder
    from gcab.paper.store import usual_name
    from gcab.runs.finding import runs_below
    from gcab.runs.folder import RunFolder

    folder, drawn = default_folder(name, runs), {run.log() for run in runs}
    for there in map(RunFolder.open, runs_below(folder)):
        if there.log() not in drawn:
            raise GcabError(
                f"{folder} has the figure of another run ({usual_name(there)}), which this one would "
                "replace: give the same command with --out DIR, its runs are kept."
            )
    return folder


def show(jobs: "list[Job]", now: "list[Job]", data: Path | None, console: Console) -> None:
    """The runs by number, with what is left to do."""
    from gcab.paper.evidence import in_epochs
    from gcab.paper.jobs import say, steps_left

    total, uncounted, width = 0, 0, max(len(job.name) for job in jobs)
    for number, job in enumerate(jobs, start=1):
        steps = steps_left(job, data) if job in now else 0
        uncounted += steps is None
        total += steps or 0
        counted = "? steps" if steps is None else f"{steps:,} steps left"
        if job in now and (distillations := len(job.to_distill(run) if (run := job.run()) else job.capacities)):
            counted += f" and {distillations} distillation{'s' * (distillations > 1)}"
        state = job.state() if job in now else "not now"
        epochs = in_epochs(job.config.training.epochs)
        say(console, f"{number:2}  {job.name:{width}}  {epochs} a task, {counted}, {state}  {job.path}")
    more = f"; {uncounted} of {len(jobs)} runs need --data DIR to be counted" if uncounted else ""
    say(console, f"{total:,} training steps in all{more}")


def whole_numbers(flag: str, text: str, example: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise GcabError(f"{flag} cannot be '{text}': give whole numbers with commas between, such as {example}.")
    return tuple(dict.fromkeys(int(part) for part in parts))
