"""From a recipe to finished runs; what is finished already is not run again."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from gcab.classifier.distillation import distillation_settings, percent
from gcab.classifier.distilling_runs import departure, distill_run, fast_folder
from gcab.config import Overrides, RunConfig, leaves, override, resolve
from gcab.data.registry import dataset
from gcab.data.scenario import Scenario
from gcab.errors import GcabError, unknown
from gcab.methods.gcab_fast import GcabFastOptions
from gcab.methods.registry import method_named
from gcab.paper.evidence import distillations
from gcab.paper.rows import Recipe, Row
from gcab.paper.timing import time_models
from gcab.profiles import DEFAULT_PROFILE
from gcab.report.logs import check_log
from gcab.runs.finding import is_run
from gcab.runs.folder import RunFolder
from gcab.runs.run import load_data, run_path, train_run
from gcab.terminal import RunDisplay, WorkDisplay

OPTIONS = "options."
IMAGES = {"cifar100": 50_000, "tiny-imagenet": 100_000}  # for training, where the data is not at hand


@dataclass(frozen=True)
class Job:
    """One run of a recipe, with the distillations and timings of its model."""

    name: str
    config: RunConfig
    path: Path
    capacities: tuple[float, ...]
    distillation: Overrides  # settings of the distillations
    timed: bool

    @property
    def buffer(self) -> int:
        """Images that the method may store."""
        return int(getattr(self.config.options, "buffer", 0))

    def makes(self, method: str) -> bool:
        """Whether the job gives a line of this method."""
        return method == self.config.method or (method == "gcab-fast" and bool(self.capacities))

    def run(self) -> RunFolder | None:
        """The run as far as it has come, if it was started."""
        return RunFolder.open(self.path) if is_run(self.path) else None

    def to_distill(self, run: RunFolder) -> list[float]:
        """The capacities that are missing, or were made with other settings, which do not matter to a clock."""
        found = distillations(run)
        wanted = {key.removeprefix(OPTIONS): value for key, value in self.distillation.items()}
        return [
            capacity
            for capacity in self.capacities
            if capacity not in found or not (self.timed or wanted.items() <= found[capacity]["options"].items())
        ]

    def state(self) -> str:
        """The job's progress in words."""
        run = self.run()
        if run is None:
            return "not started"
        if not run.final():
            return f"{len(run.records('task'))} of {len(run.tasks)} tasks learned"
        missing = len(self.to_distill(run))
        return f"{missing} of {len(self.capacities)} distillations to do" if missing else "finished"


def plan(
    recipe: Recipe,
    root: Path,
    scenarios: Sequence[str] = (),
    seeds: Sequence[int] = (1,),
    epochs: int | None = None,
    settings: Overrides | None = None,
) -> list[Job]:
    """Every run of a recipe; `settings` apply to runs that have them, but do not override a row's own changes."""
    given, known = settings or {}, set(distillation_settings(DEFAULT_PROFILE))
    jobs: dict[Path, Job] = {}
    for scenario in scenarios or recipe.scenarios:
        for row in recipe.rows:
            base = resolve(scenario, row.method, row.profile)
            own = {key for key, _, _ in leaves(base)} - {"method", "profile", "seed"}
            known |= own
            changes = {
                "training.epochs": min(row.epochs or recipe.epochs or base.training.epochs, base.training.epochs)
                if epochs is None
                else epochs,
                **{key: value for key, value in {**recipe.settings, **given}.items() if key in own},
                **row.changes,
            }
            for seed in seeds:
                config = resolve(scenario, row.method, row.profile, seed, changes)
                job = make_job(row, config, root, given, recipe.timed)
                name = f"{job.name}, seed {seed}" if len(seeds) > 1 else job.name
                jobs.setdefault(job.path, replace(job, name=name))
    for key in given:
        if key not in known:
            raise unknown("setting", key, known)
    return list(jobs.values())


def make_job(row: Row, config: RunConfig, root: Path, settings: Overrides, timed: bool) -> Job:
    known = distillation_settings(config.profile)
    given = {key: value for key, value in {**known, **row.distillation, **settings}.items() if key in known}
    student = override(RunConfig(options=GcabFastOptions()), given)
    distillation = {key: value for key, _, value in leaves(student) if key in known}
    path = run_path(root, config)
    return Job(f"{config.scenario.name}, {row.name}", config, path, row.capacities, distillation, timed)


def of_methods(jobs: Sequence[Job], methods: Sequence[str], buffers: Sequence[int]) -> list[Job]:
    """Jobs of some methods, and where these store images, with some memories; all where none is named."""
    made = {name: [job for job in jobs if job.makes(name)] for name in methods}
    sizes = sorted({job.buffer for job in jobs if job.buffer})
    for name, found in made.items():
        if not found:
            raise unknown("method of this figure", name, sorted({job.config.method for job in jobs}))
    for size in buffers:
        if size not in sizes:
            known = f"memories have {' and '.join(map(str, sizes))} images" if sizes else "methods store no images"
            raise GcabError(f"--buffers {size} fits none of the {len(jobs)} runs, whose {known}.")
    wanted = [job for job in jobs if not methods or any(job in found for found in made.values())]
    return [job for job in wanted if not buffers or not job.buffer or job.buffer in buffers]


def chosen(jobs: Sequence[Job], only: str | None) -> list[Job]:
    """Some of the jobs, by their numbers from 1 or by parts of their names, with commas between."""
    if only is None:
        return list(jobs)
    found: list[Job] = []
    for part in filter(None, map(str.strip, only.split(","))):
        if part.isdecimal():
            fitting = list(jobs[int(part) - 1 : int(part)]) if int(part) > 0 else []
        else:
            fitting = [job for job in jobs if part.lower() in job.name.lower()]
        if not fitting:
            raise GcabError(f"--only {part} fits none of the {len(jobs)} runs: see their names with --dry-run.")
        found += [job for job in fitting if job not in found]
    if not found:
        raise GcabError("--only names no run: give numbers or parts of names, see --dry-run.")
    return found


def steps_left(job: Job, root: Path | None) -> int | None:
    """Training steps that a job still needs, counted in whole tasks; None where that takes the data."""
    run, info = job.run(), dataset(job.config.scenario.dataset)
    if run is not None and run.final():
        return 0
    learned = len(run.records("task")) if run is not None else 0
    joint = method_named(job.config.method).joint
    if info.needs_root and root is None:
        if info.name not in IMAGES or info.classes is None:
            return None
        scenario = Scenario.build(job.config.scenario, job.config.seed, [str(label) for label in range(info.classes)])
        counts = [IMAGES[info.name] * task.classes // info.classes for task in scenario.tasks]
    else:
        data = load_data(job.config, root)
        counts = [len(data.scenario.open(task, data.train).train().labels) for task in data.scenario.tasks]
    counts = [sum(counts)] if joint else counts[learned:]
    training = job.config.training
    first = 0 if joint else learned
    return sum(
        training.epochs_of(task) * (count // min(training.batch_size, count))
        for task, count in enumerate(counts, first)
    )


def run_jobs(jobs: Sequence[Job], root: Path | None, device: torch.device, console: Console, command: str) -> None:
    """Run what is missing of every job, one after another."""
    before: Any = None
    for number, job in enumerate(jobs, start=1):
        if device.type == "cuda" and before not in (None, compile_key(job.config)):
            torch.compiler.reset()  # its cache holds few graphs of a function; beyond that, it silently runs eager
        before = compile_key(job.config)
        run_job(job, root, device, console, f"{number} of {len(jobs)}: {job.name}", command)


def run_job(job: Job, root: Path | None, device: torch.device, console: Console, title: str, command: str) -> None:
    """Train, distill and time what is missing."""
    run = job.run()
    if run is None or not run.final():
        train(job, root, device, console, title, command)
        if device.type == "cuda":
            gc.collect()  # a run's recorded steps hold device memory in reference cycles
        run = RunFolder.open(job.path)
    else:
        say(console, f"{title}: finished before")
    for capacity in job.to_distill(run):
        out, settings = fast_folder(run, capacity), job.distillation
        if out.exists():
            say(console, f"{title}: {out.name} was made with other settings and is made again")
        with WorkDisplay(console, f"{title}: distilling to {percent(capacity)} %") as display:
            check_log(run)
            figures = distill_run(
                run, root, capacity, out, device, settings, command, watch=display, note=display.note, give_up=True
            )
        accuracy, seconds = figures["gcab-fast"]["acc_tag"], figures["seconds"]
        say(console, f"{title}: distilled to {percent(capacity)} %: ACC_TAG {accuracy:.2f} % ({seconds:.0f} s)")
        if sentence := departure(figures):
            say(console, f"{title}: {sentence}")
    if job.timed:
        time_models(run, device)
        say(console, f"{title}: timed")


def train(job: Job, root: Path | None, device: torch.device, console: Console, title: str, command: str) -> None:
    """Start the run or continue it."""
    config = job.config
    say(console, title)
    if caution := config.training.caution():
        say(console, f"{title}: {caution}")
    with RunDisplay(console, job.name, config.epochs) as display:
        final = train_run(config, load_data(config, root), job.path, device, display, command)
    say(
        console,
        f"{title}: ACC_TAG {final['acc_tag']:.2f} %  ACC_TAW {final['acc_taw']:.2f} %  ({final['seconds']:.0f} s)",
    )


def compile_key(config: RunConfig) -> list[tuple[str, Any]]:
    """The settings that decide which code is compiled: all but weights and rates, which are floats."""
    skipped = ("seed", "profile", "training.epochs", "scenario.name", "scenario.tasks")
    return [(key, value) for key, kind, value in leaves(config) if kind is not float and key not in skipped]


def say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
