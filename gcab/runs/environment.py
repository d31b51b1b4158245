"""The environment of a measurement: versions, commit, system, hardware."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gcab.version import VERSION

if TYPE_CHECKING:
    import torch

HARDWARE = ("device", "precision", "cuda", "driver", "platform")  # keys of a run's config.json, as people are told them


def environment() -> dict[str, Any]:
    """Say what the program runs on, for config.json: versions, system, and the commit when it runs from a checkout."""
    versions = {
        "gcab": VERSION,
        "torch": version("torch"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    system = f"{platform.system()} {platform.machine()}"
    return {"versions": versions, "platform": system, "commit": _commit(Path(__file__).resolve().parents[2])}


def hardware(device: "torch.device", count: int = 1) -> dict[str, Any]:
    """Say what was computed on, for config.json; a GPU's numbers depend on its libraries and its driver, too."""
    name = device_name(device)
    named = {"device": f"{count} x {name}" if count > 1 else name}
    if device.type != "cuda":
        return named
    import torch

    driver = _answer(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return {**named, "cuda": torch.version.cuda, "driver": driver[0] if driver else None}


def device_name(device: "torch.device") -> str:
    """Name the hardware a run was measured on."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    return device.type.upper()


def _commit(checkout: Path) -> str | None:
    answer = _answer(["git", "-C", str(checkout), "rev-parse", "--show-toplevel", "--verify", "HEAD"])
    # An installed package may lie inside somebody else's checkout, whose commit says nothing about it.
    return answer[1] if answer and Path(answer[0]).resolve() == checkout else None


def _answer(command: list[str]) -> list[str] | None:
    """Lines that another program prints, if it is there and succeeds."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        return None
