"""gcab as programs of their own: one, or several started together."""

import json
import os
import select
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from helpers.prepared import Program

TESTS = Path(__file__).parents[1]
LIMIT = 1800  # seconds; only a hanging program takes that long, however busy the machine is


def gcab(*arguments: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command, as a person would, and wait for it; what it runs is measured where tests call it themselves."""
    with start(*arguments, folder=folder) as program:
        out, errors = program.communicate(LIMIT)
    return subprocess.CompletedProcess(arguments, program.wait(), out, errors)


def start(*arguments: str | Path, folder: Path | None = None) -> Program:
    """Run a command without waiting for it."""
    return Program(list(map(str, arguments)), folder, unmeasured())


def environment() -> dict[str, str]:
    """One thread, as several would only get into each other's way on networks this small; helpers can be imported."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": path}


def unmeasured() -> dict[str, str]:
    """For programs that will be interrupted: that can strike while coverage holds its lock, which then stays locked."""
    return {name: value for name, value in environment().items() if not name.startswith("COVERAGE")}


def start_ranks(processes: int, *arguments: str | Path) -> Program:
    """`torchrun --nproc-per-node=K ...` without waiting for it."""
    command = ["--standalone", f"--nproc-per-node={processes}", *map(str, arguments)]
    return Program(command, None, unmeasured(), module="torch.distributed.run")


def torchrun(processes: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same, and wait."""
    with start_ranks(processes, *arguments) as program:
        out, errors = program.communicate(LIMIT)
    return subprocess.CompletedProcess(arguments, program.wait(), out, errors)


def ranks(processes: int, *arguments: str | Path, module: str = "gcab") -> list[subprocess.CompletedProcess[str]]:
    """What a launcher's processes do and say, without one; as with one, the others are ended when one fails."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    words, world = [str(argument) for argument in arguments], str(processes)
    started = []
    for rank in map(str, range(processes)):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, **meeting}
        started.append(Program(words, None, {**unmeasured(), **place}, module=module))
    with ThreadPoolExecutor(2 * processes) as readers:
        said = [[readers.submit(stream.read) for stream in (one.stdout, one.stderr)] for one in started]
        end_together(started)
    finished = []
    for program, texts in zip(started, said, strict=True):
        with program:
            out, errors = (text.result() for text in texts)
        finished.append(subprocess.CompletedProcess(words, program.wait(), out, errors))
    return finished


def end_together(programs: Sequence[Program]) -> None:
    """Wait for all, and end those that are left when one fails: what they wait for may never come."""
    left = list(programs)
    while left:
        ended = select.select([program.told for program in left], [], [], LIMIT)[0]
        failed = not ended or any(program.wait() for program in left if program.told in ended)
        left = [program for program in left if program.told not in ended]
        for program in left if failed else ():
            program.kill()


def ranks_of(launcher: Program) -> list[int]:
    """The processes that a launcher started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid, parent in map(str.split, listed.splitlines()) if int(parent) == launcher.pid]


def records(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The complete lines of a run's metrics; none if there is no such file yet."""
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes().split(b"\n")[:-1] if metrics.exists() else []
    return [record for record in map(json.loads, lines) if kind in (None, record["kind"])]


def without_seconds(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that two runs of one configuration must share."""
    return [{key: value for key, value in record.items() if key != "seconds"} for record in found]
