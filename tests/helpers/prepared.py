"""Programs that start in a moment: each is a process of its own, forked from one that has loaded torch already.

`python -m helpers.prepared SOCKET PYTHON` is that one: it takes orders from a socket until its input ends, and what it
runs starts further programs in the same way.
"""

import atexit
import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from helpers.forked import given_order, send_order

LOADED = (
    "torch._dynamo",
    "torch.distributed.run",
    "sklearn.datasets",
    "gcab.runs.run",
    "gcab.classifier.teaching",
    "gcab.serve.server",
)
PATIENCE = 2  # seconds for programs that are left when the tests have ended, some of which wait for those to end
CLIENT = Path(__file__).with_name("forked.py")
PYTHON = sys.executable  # whatever is called so later
SHARED = "GCAB_PREPARED"  # where processes that test side by side find the one that they all ask


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
        order = given_order("-m", module, arguments, folder or Path.cwd(), environment, terminal is not None)
        readers, writers = zip(*(os.pipe() for _ in range(2)), strict=True)
        nothing = os.open(os.devnull, os.O_RDONLY)
        given = (nothing, *writers) if terminal is None else (terminal,) * 3
        self.told, self.pid = send_order(address(), order, dict(enumerate(given)))
        for file in (nothing, *writers):
            os.close(file)
        self.stdout, self.stderr = (os.fdopen(reader) for reader in readers)

    returncode: int | None = None

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
def started() -> Path:
    """The folder of the process that has loaded torch: its socket, and programs that ask it to be forked."""
    if SHARED in os.environ:
        return Path(os.environ[SHARED])
    from helpers.processes import unmeasured  # which needs this file

    folder = Path(tempfile.mkdtemp(prefix="gcab-"))  # a socket's path must be short
    python, meeting = folder / "python", folder / "socket"
    script(python, f'"{PYTHON}" -I -S "{CLIENT}" "{meeting}" "{PYTHON}"')
    script(folder / "gcab", f'"{python}" -m gcab')
    with socket.socket(socket.AF_UNIX) as orders:
        orders.bind(str(meeting))
        orders.listen(64)
        command = [PYTHON, "-m", "helpers.prepared", str(orders.fileno()), str(python)]
        process = subprocess.Popen(command, pass_fds=[orders.fileno()], stdin=subprocess.PIPE, env=unmeasured())
    atexit.register(end, os.getpid(), process, folder)
    return folder


def end(owner: int, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Its input ends, and what it started is waited for; not by who was forked from who started it."""
    if os.getpid() == owner:
        process.communicate()
        shutil.rmtree(folder)


def script(file: Path, command: str) -> None:
    """A program that is a command with the arguments it is given."""
    file.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    file.chmod(0o700)


def address() -> str:
    return str(started() / "socket")


def take_orders(orders: socket.socket) -> None:
    """For each order a process that comes back from here when the program has ended; this one at the end."""
    waiting = []
    while orders in select.select([orders, sys.stdin], [], [])[0]:
        connection, _ = orders.accept()
        waiting.append(os.fork())
        if waiting[-1] == 0:
            orders.close()
            return receive(connection)
        connection.close()
    deadline = time.monotonic() + PATIENCE
    while waiting and time.monotonic() < deadline:
        waiting = [process for process in waiting if os.waitpid(process, os.WNOHANG)[0] == 0]
        time.sleep(0.01 * bool(waiting))
    return None


def receive(connection: socket.socket) -> None:
    """Read an order, run it in one more process, tell its number and, when it has ended, how."""
    text, files, _, _ = socket.recv_fds(connection, 2**16, 253)
    while not text.endswith(b"\n"):
        text += connection.recv(2**16)
    order = json.loads(text)
    process = os.fork()
    if process == 0:
        return carry_out(order, files)
    for file in files:
        os.close(file)

    over = threading.Event()

    def end_with_the_client() -> None:
        connection.recv(1)
        if not over.is_set():
            os.kill(process, signal.SIGKILL)

    threading.Thread(target=end_with_the_client, daemon=True).start()
    with suppress(BrokenPipeError):
        connection.sendall(f"{process}\n".encode())
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    over.set()  # from here on its number may be another's
    _, status = os.waitpid(process, 0)
    with suppress(BrokenPipeError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def carry_out(order: dict[str, Any], files: Sequence[int]) -> None:
    """Be what was ordered, with the files of whom it was ordered by under the same numbers."""
    wanted = dict(zip(order["files"], [fcntl.fcntl(file, fcntl.F_DUPFD, 256) for file in files], strict=True))
    os.closerange(0, 256)
    for number, file in wanted.items():
        os.dup2(file, number)
        os.close(file)
    if order["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    at_once = order["terminal"] or order["unbuffered"]
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1 if at_once else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        import coverage

        coverage.process_startup()
    sys.argv[:] = [sys.argv[0], *order["arguments"]]
    try:
        if order["kind"] == "-m":
            runpy.run_module(order["program"], run_name="__main__", alter_sys=True)
        else:
            sys.argv[0] = "-c"
            exec(order["program"], {"__name__": "__main__"})
    except SystemExit as asked:
        if isinstance(asked.code, str):  # which Python prints
            raise
        leave(asked.code or 0)
    leave(0)


def leave(code: int) -> NoReturn:
    """End as Python does, but without taking torch apart, which is two thirds of what a small program costs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not sys.stdout.closed:
        sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    for module in LOADED:
        importlib.import_module(module)
    number, sys.executable = int(sys.argv[1]), sys.argv[2]
    multiprocessing.set_executable(sys.executable)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores for what it runs in the background
    gc.collect()
    gc.freeze()
    take_orders(socket.socket(fileno=number))
