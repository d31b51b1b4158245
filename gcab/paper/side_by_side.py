"""Several runs of a recipe at a time, each in a process of its own: on one GPU they fill each other's gaps."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import torch
from rich.console import Console

from gcab.errors import GcabError
from gcab.paper.jobs import Job, run_job, say


def run_side_by_side(
    jobs: Sequence[Job], root: Path | None, device: torch.device, console: Console, command: str, at_once: int
) -> None:
    """Whatever is missing of every job; one that fails does not stop the others."""
    failed: list[str] = []
    processes = get_context("spawn")
    stop = processes.Event()
    # A fresh process for every run: what one leaves in a device's memory the next should not pay for.
    pool = ProcessPoolExecutor(at_once, processes, end_with, (os.getpid(), stop.is_set), max_tasks_per_child=1)
    try:
        titles = {
            pool.submit(in_a_process, job, f"{number} of {len(jobs)}: {job.name}", root, device, command): job.name
            for number, job in enumerate(jobs, start=1)
        }
        for done in as_completed(titles):
            if problem := done.result():
                failed.append(titles[done])
                say(console, f"{titles[done]}: {problem}")
    except BrokenProcessPool:
        raise GcabError(
            "the process of a run has ended without a word, perhaps for want of memory: try a smaller --at-once; the "
            "same command continues what is left."
        ) from None
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
    if failed:
        raise GcabError(f"{len(failed)} of {len(jobs)} runs failed ({'; '.join(failed)}): what they said is above.")


def in_a_process(job: Job, title: str, root: Path | None, device: torch.device, command: str) -> str:
    """Run a job with plain lines, which several processes may write in turn; returns what went wrong."""
    try:
        run_job(job, root, device, Console(force_terminal=False), title, command)
    except GcabError as error:
        return str(error)
    return ""


def end_with(parent: int, stopped: Callable[[], bool]) -> None:
    """No run outlives the command that started it, however that ends; its checkpoints stay."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent and not stopped():
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
