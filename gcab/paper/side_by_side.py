"""The runs of a recipe on an engine: several at a time, on this machine or on others."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from gcab.fleet.dispatch import Work, run_all
from gcab.fleet.engine import Engine
from gcab.paper.jobs import Job, run_job
from gcab.parallel.devices import choose_device
from gcab.runs.folder import final_of


def run_side_by_side(
    jobs: Sequence[Job], root: Path | None, device: str, console: Console, command: str, engine: Engine, tries: int
) -> None:
    """Run what is missing of every job; workers get absolute paths, as they may be elsewhere."""
    works = []
    for number, job in enumerate(jobs, start=1):
        there, title = replace(job, path=job.path.resolve()), f"{number} of {len(jobs)}: {job.name}"
        call = partial(in_a_worker, there, title, root and root.resolve(), device, command)
        works.append(Work(job.name, call, partial(result_of, there)))
    run_all(works, engine, console, tries)


def in_a_worker(job: Job, title: str, root: Path | None, device: str, command: str) -> str:
    """Run a job on the worker's own device, with plain lines, which several processes may write in turn."""
    run_job(job, root, choose_device(device), Console(force_terminal=False), title, command)
    return ""


def result_of(job: Job, _: str) -> str:
    """What a finished job came to, read where the command was given."""
    final = final_of(job.path)
    return f"ACC_TAG {final['acc_tag']:.2f} %  ACC_TAW {final['acc_taw']:.2f} %  ({final['seconds']:.0f} s)"
