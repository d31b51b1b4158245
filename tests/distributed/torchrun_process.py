"""Several processes at once, as a person starts them."""

import os
import subprocess
import sys
from pathlib import Path

LIMIT = 240  # seconds; only a hanging program takes that long


def start(processes: int, *arguments: str | Path) -> subprocess.Popen[str]:
    """`torchrun --nproc-per-node=K ...` without waiting for it."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [*launcher, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def torchrun(processes: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same, and wait."""
    process = start(processes, *arguments)
    with process:
        out, err = process.communicate(timeout=LIMIT)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def ranks_of(launcher: subprocess.Popen[str]) -> list[int]:
    """The processes that a launcher started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid, parent in map(str.split, listed.splitlines()) if int(parent) == launcher.pid]
