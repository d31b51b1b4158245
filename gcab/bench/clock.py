"""Timing of calls: warmed up, synchronised, the median of many; alternative ways are timed in turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gcab.errors import GcabError

WARM_UP = 2  # calls


@dataclass(frozen=True)
class Effort:
    """The stopping rule of a measurement: at least so many repetitions and so many seconds."""

    calls: int
    seconds: float


@dataclass(frozen=True)
class Timed:
    """The measured cost of one way."""

    seconds: float  # median over calls
    peak_bytes: int | None  # of the GPU's memory; None on a CPU


def wait_for(device: torch.device) -> None:
    """Synchronise with the device; a CPU needs no waiting."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    wait_for(device)
    start = time.perf_counter()
    call()
    wait_for(device)
    return time.perf_counter() - start


def time_ways(ways: Mapping[str, Callable[[], object]], device: torch.device, effort: Effort) -> dict[str, Timed]:
    """Time all ways in turns, so that a machine that slows down for a while slows them all."""
    peaks: dict[str, int | None] = {}
    for name, call in ways.items():
        forget_peak(device)
        for _ in range(WARM_UP):
            call()
        wait_for(device)
        peaks[name] = peak_bytes(device)
    samples: dict[str, list[float]] = {name: [] for name in ways}
    start = time.perf_counter()
    for calls in range(1, 1_000_000):
        for name, call in ways.items():
            samples[name].append(seconds_of(call, device))
        if calls >= effort.calls and time.perf_counter() - start >= effort.seconds * len(ways):
            break
    return {name: Timed(statistics.median(samples[name]), peaks[name]) for name in ways}


def require_agreement(what: str, expected: Tensor, found: Tensor, tolerance: float) -> None:
    """Raise an error if results differ by more than a tolerance, as a share of the largest value."""
    error = ((found - expected).abs().amax() / expected.abs().amax()).item()
    if not error <= tolerance:  # also for NaN
        raise GcabError(
            f"{what} differ by {error:.2g} of the largest value, more than {tolerance:g}: "
            "their speed is not compared; please report this."
        )
