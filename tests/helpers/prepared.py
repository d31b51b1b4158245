"""Programs that start in a moment: each is a process of its own, forked from one that has loaded torch already.

`python -m helpers.prepared FD` is that one: it takes orders from a socket until nobody is at its other end.
"""

import atexit
import fcntl
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

LOADED = ("torch._dynamo", "sklearn.datasets", "gcab.runs.experiment", "gcab.classifier.teaching", "gcab.serve.server")


class Program:
    """What tests need of `subprocess.Popen`, for `python -m MODULE ...`."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path | None,
        environment: Mapping[str, str],
        terminal: int | None = None,
        module: str = "gcab",
    ) -> None:
        """In a terminal it has a session of its own, and all that it prints appears there."""
        order = {
            "module": module,
            "arguments": list(arguments),
            "folder": str(folder or Path.cwd()),
            "environment": dict(environment),
            "terminal": terminal is not None,
        }
        readers, writers = zip(*(os.pipe() for _ in range(3)), strict=True)
        given = writers if terminal is None else (terminal, terminal, writers[-1])
        socket.send_fds(started(), [json.dumps(order).encode() + b"\n"], given)
        for writer in writers:
            os.close(writer)
        self.stdout, self.stderr, self.told = (os.fdopen(reader) for reader in readers)
        self.pid, self.returncode = int(self.told.readline()), None

    returncode: int | None

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.wait()
        for stream in (self.stdout, self.stderr, self.told):
            stream.close()

    def poll(self) -> int | None:
        """The exit code, or None while it runs; negative after a signal."""
        if self.returncode is None and select.select([self.told], [], [], 0)[0]:
            self.returncode = int(self.told.readline())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self.told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("gcab", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it still prints, and its end."""
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                out, errors = (text.result(timeout) for text in texts)
            except TimeoutError:
                self.kill()
                raise
        self.__exit__(None, None, None)
        return out, errors

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def started() -> socket.socket:
    """The way to the process that has loaded torch."""
    from helpers.processes import unmeasured  # which needs this file

    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "helpers.prepared", str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=unmeasured())
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def take_orders(orders: socket.socket) -> None:
    """For each order a process that comes back from here when the program has ended; this one at the end."""
    waiting = []
    while (received := socket.recv_fds(orders, 2**16, 3))[0]:
        text, files, _, _ = received
        while not text.endswith(b"\n"):
            text += orders.recv(2**16)
        waiting.append(os.fork())
        if waiting[-1] == 0:
            orders.close()
            return carry_out(json.loads(text), *files)
        for file in files:
            os.close(file)
    for process in waiting:
        os.waitpid(process, 0)
    return None


def carry_out(order: dict[str, Any], out: int, errors: int, told: int) -> None:
    """Run a program in one more process, tell its number and, when it has ended, how."""
    process = os.fork()
    if process:
        os.close(out)
        os.close(errors)
        os.write(told, f"{process}\n".encode())
        _, status = os.waitpid(process, 0)
        os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    given = out if order["terminal"] else os.open(os.devnull, os.O_RDONLY)
    for place, file in enumerate((given, out, errors)):
        os.dup2(file, place)
    for file in {given, out, errors, told}:
        os.close(file)
    if order["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdout = os.fdopen(1, "w", buffering=1 if order["terminal"] else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv[1:] = order["arguments"]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for module in LOADED:
        importlib.import_module(module)
    take_orders(socket.socket(fileno=int(sys.argv[1])))
