"""The engine of one machine: every call in a process of its own, several of which may share a GPU."""

import os
import signal
import threading
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait

from gcab.fleet.engine import Call, Engine, Outcome, attempt

LOST = (
    "its process has ended too early; where nothing above says why, perhaps for want of memory: try a smaller --at-once"
)


class Process:
    """A call in a spawned process, with which the device memory that it took is released.

    The two share a pipe and nothing else, so that a command that is killed leaves nothing to clean up.
    """

    def __init__(self, call: Call) -> None:
        processes = get_context("spawn")
        self.answer, answering = processes.Pipe(duplex=False)
        self.process = processes.Process(target=in_a_process, args=(answering, call))
        self.process.start()
        answering.close()  # our copy, so that the pipe ends when the process does

    def outcome(self) -> Outcome:
        """The outcome of a process that has answered or ended."""
        try:
            found: Outcome = self.answer.recv()
        except EOFError:
            found = Outcome(problem=LOST, again=True)
        self.process.join()
        return found

    def end(self) -> None:
        """Terminate the process; its checkpoints stay."""
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Processes(Engine):
    """A pool of at most `at_once` processes."""

    shows_output = True

    def __init__(self, at_once: int) -> None:
        super().__init__(at_once)
        self.running: dict[int, Process] = {}

    def open(self) -> None:
        """There is nothing to connect to."""

    def start(self, number: int, call: Call) -> None:
        self.running[number] = Process(call)

    def ended(self, seconds: float) -> dict[int, Outcome]:
        wait([process.answer for process in self.running.values()], seconds)
        ready = [number for number, process in self.running.items() if process.answer.poll()]
        return {number: self.running.pop(number).outcome() for number in ready}

    def close(self) -> None:
        for process in self.running.values():
            process.end()


def in_a_process(answering: Connection, call: Call) -> None:
    end_with_the_command()
    answering.send(attempt(call))


def end_with_the_command() -> None:
    """End this process with the command that started it, however that ends; its checkpoints stay."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        if command := parent_process():
            command.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
