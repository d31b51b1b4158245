"""Several runs of a recipe at a time, each in a process of its own: on one GPU they fill each other's gaps."""

import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch
from rich.console import Console

from gcab.errors import GcabError
from gcab.paper.jobs import Job, run_job, say


class Run:
    """A job in a fresh process: what one leaves in a device's memory the next should not pay for.

    The two share a pipe and nothing else, so that a command that is killed leaves nothing to clean up.
    """

    def __init__(self, job: Job, title: str, root: Path | None, device: torch.device, command: str) -> None:
        processes = get_context("spawn")
        self.name = job.name
        self.answer, self.answering = processes.Pipe(duplex=False)
        self.process = processes.Process(target=in_a_process, args=(self.answering, job, title, root, device, command))

    def start(self) -> None:
        self.process.start()
        self.answering.close()  # here: the answer is at an end when the process is

    def problem(self) -> str:
        """What went wrong, once it is done."""
        try:
            said: str = self.answer.recv()
        except EOFError:
            raise GcabError(
                f"the process of {self.name} has ended too early; where nothing above says why, perhaps for want of "
                "memory: try a smaller --at-once; the same command continues what is left."
            ) from None
        self.process.join()
        return said

    def end(self) -> None:
        """Terminate the process; its checkpoints stay."""
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def run_side_by_side(
    jobs: Sequence[Job], root: Path | None, device: torch.device, console: Console, command: str, at_once: int
) -> None:
    """Whatever is missing of every job; one that fails does not stop the others."""
    waiting = list(enumerate(jobs, start=1))
    running: list[Run] = []
    failed: list[str] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                number, job = waiting.pop(0)
                running.append(Run(job, f"{number} of {len(jobs)}: {job.name}", root, device, command))
                running[-1].start()
            wait([run.answer for run in running])
            for run in [run for run in running if run.answer.poll()]:
                if problem := run.problem():
                    failed.append(run.name)
                    say(console, f"{run.name}: {problem}")
                running.remove(run)
    finally:
        for run in running:
            run.end()
    if failed:
        raise GcabError(f"{len(failed)} of {len(jobs)} runs failed ({'; '.join(failed)}): what they said is above.")


def in_a_process(
    answering: Connection, job: Job, title: str, root: Path | None, device: torch.device, command: str
) -> None:
    """Run a job with plain lines, which several processes may write in turn; answers with what went wrong."""
    end_with_the_command()
    try:
        run_job(job, root, device, Console(force_terminal=False), title, command)
    except (GcabError, OSError) as error:
        answering.send(str(error))
    else:
        answering.send("")


def end_with_the_command() -> None:
    """No run outlives the command that started it, however that ends; its checkpoints stay."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        if command := parent_process():
            command.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
