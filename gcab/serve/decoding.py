"""Untrusted pictures are decoded in worker processes: one that exceeds its limits is killed and replaced."""

import contextlib
import json
import math
import queue
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any

from gcab.data.containers.contents import Bounds
from gcab.serve.decoder import READY
from gcab.serve.limits import Limits, RequestError, in_mebi
from gcab.serve.wording import without_paths
from gcab.sizes import Size, sides

COMMAND = (sys.executable, "-m", "gcab.serve.decoder")
CHUNK = 2**20
CHANNELS = 3
STUCK_SECONDS = 120  # until a worker is given up that uses no processor time, or hardly gets any
SLACK = 32 * 2**20  # bytes of address space that a process may take beside what a picture is estimated to need

Spend = Callable[[float], object]  # callback: gets seconds of processor time


def ignore(_: float) -> None:
    """The default callback: ignores the time that was taken."""


class Worker:
    """One process and the pipes to it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.answers = self.process.stdin, self.process.stdout
        self.ready = False

    def ask(self, request: dict[str, Any], file: IO[bytes]) -> tuple[dict[str, Any], bytes]:
        """The answer and the picture; `EOFError` or `BrokenPipeError` if the process has ended on the way."""
        self.wait_until_ready()
        self.requests.write(json.dumps(request).encode() + b"\n")
        while chunk := file.read(CHUNK):
            self.requests.write(chunk)
        self.requests.flush()
        answer = json.loads(self.line())
        picture = b"" if "error" in answer else self.answers.read(CHANNELS * math.prod(request["size"]))
        return answer, picture

    def wait_until_ready(self) -> None:
        if not self.ready:
            self.ready = self.line() == READY

    def line(self) -> bytes:
        if not select.select([self.answers], [], [], STUCK_SECONDS)[0]:
            raise TimeoutError
        line = self.answers.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line

    def end(self) -> int:
        """Kill the process and return its exit code, which is negative for a signal."""
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.requests, self.answers):
            with contextlib.suppress(OSError):  # what was never sent cannot be flushed any more
                pipe.close()
        return code


class Decoders:
    """A pool of workers, each replaced when it has ended."""

    def __init__(self, count: int, limits: Limits) -> None:
        self.limits = limits
        self.bounds = photo_bounds(limits)
        self.idle: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()  # None: to be started when it is needed
        self.workers: set[Worker] = set()
        self.ended = 0  # workers that a picture has brought down
        self.closed = False
        for _ in range(count):
            self.idle.put(None)
        self.finalise = weakref.finalize(self, end_all, self.workers)  # also if it is never closed

    def start(self) -> None:
        """Start all workers, so that the first picture need not wait for them."""
        workers = [self.idle.get() or self.started() for _ in range(self.idle.qsize())]
        for worker in workers:
            worker.wait_until_ready()
            self.idle.put(worker)

    def close(self) -> None:
        """End all of them, whatever they do."""
        self.closed = True
        self.finalise()

    def decode(self, file: IO[bytes], name: str, size: Size, spend: Spend = ignore) -> bytes:
        """(height, width, 3) bytes, or `RequestError` for what is no good picture; `spend` gets the time."""
        count = file.seek(0, 2)
        file.seek(0)
        if count > self.bounds.file_bytes:
            raise RequestError(413, f"{name} has more than {in_mebi(self.bounds.file_bytes)}: shrink it first.")
        request = {
            "bytes": count,
            "name": name,
            "size": sides(size),
            "bounds": asdict(self.bounds),
            "seconds": self.limits.decoding_seconds,
            "growth": self.limits.decoding_bytes + SLACK,
        }
        with self.worker(name, spend) as worker:
            answer, picture = worker.ask(request, file)
        spend(answer["seconds"])
        if "error" in answer:
            raise RequestError(answer["status"], without_paths(answer["error"]))
        return picture

    @contextmanager
    def worker(self, name: str, spend: Spend) -> Iterator[Worker]:
        """Context manager for an idle worker, which is replaced after any error."""
        worker = self.idle.get() or self.started()
        try:
            yield worker
        except (EOFError, BrokenPipeError):
            ready, code = worker.ready, self.remove(worker)
            self.idle.put(None)
            if not ready and not self.closed:
                raise RuntimeError(f"a process that decodes cannot start (exit code {code})") from None
            self.ended += 1
            spend(self.limits.decoding_seconds)
            raise ended(name, code, self.limits) from None
        except BaseException:  # it may wait for bytes that will never come
            self.remove(worker)
            self.idle.put(None)
            raise
        else:
            self.idle.put(worker)

    def started(self) -> Worker:
        worker = Worker()
        self.workers.add(worker)
        return worker

    def remove(self, worker: Worker) -> int:
        self.workers.discard(worker)
        return worker.end()


def end_all(workers: set[Worker]) -> None:
    for worker in list(workers):
        worker.end()
    workers.clear()


def photo_bounds(limits: Limits) -> Bounds:
    """The resource limits for decoding one picture."""
    return Bounds(limits.body_bytes, limits.pixels, limits.decoding_bytes, limits.scans)


def ended(name: str, code: int, limits: Limits) -> RequestError:
    """The error for a picture during which a worker was killed by the system."""
    if code == -signal.SIGPROF:
        return RequestError(
            413, f"{name} takes more than {limits.decoding_seconds:g} s to decode: save it again as JPEG or PNG."
        )
    return RequestError(422, f"{name} is damaged or needs too much memory: send it again or save it as PNG.")
