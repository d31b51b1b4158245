"""Where the runs of published figures are kept: each once, of however many figures it is a part."""

import gzip
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from gcab.runs.files import write_bytes
from gcab.runs.finding import PACKED_LOG, RUN_LIST, is_run, listed_runs
from gcab.runs.folder import RunFolder

RESULTS = "results"


def store_of(out: Path) -> Path:
    """Figures in a folder `results` share their runs; one that lies elsewhere has its own, and can be given away."""
    return out.parent / "runs" if out.resolve().parent.name == RESULTS else out / "runs"


def usual_name(run: RunFolder) -> Path:
    """The name of a run in a store, unless another run of the same settings and seed has it."""
    return Path(run.scenario) / run.method / f"{run.seed}-{run.group.rpartition('/')[2]}"


def keep(run: RunFolder, out: Path, patterns: Sequence[str], spared: set[Path]) -> Path:
    """Store a run's configuration, log and what fits the patterns, for the figures in `out`; returns its folder."""
    found = [path for pattern in patterns for path in sorted(run.path.glob(pattern.format(last=len(run.tasks))))]
    files = {str(path.relative_to(run.path)): path.read_bytes() for path in found if path not in spared}
    place = place_of(run, out, files)
    if not is_run(place):
        write_bytes(place / PACKED_LOG, gzip.compress(run.log_bytes(), mtime=0))
        write_bytes(place / "config.json", (run.path / "config.json").read_bytes())
    for name, content in files.items():
        if not has(place / name, content):
            write_bytes(place / name, content)
    return place


def place_of(run: RunFolder, out: Path, files: dict[str, bytes]) -> Path:
    """The first folder that is free or has this run; what a figure elsewhere is made of is not written over."""
    store, name = store_of(out), usual_name(run)
    elsewhere = {
        run.resolve()
        for others in store.parent.glob(f"*/{RUN_LIST}")
        if others.parent.resolve() != out.resolve()
        for run in listed_runs(others.parent)
    }
    for number in count(1):
        place = store / (name if number == 1 else name.with_name(f"{name.name}-{number}"))
        if not is_run(place):
            break
        same = all(has(place / file, files[file]) for file in files if (place / file).exists())
        if RunFolder.open(place).log() == run.log() and (same or place.resolve() not in elsewhere):
            break
    return place


def has(path: Path, content: bytes) -> bool:
    return path.exists() and path.read_bytes() == content


def relative_path(out: Path, place: Path) -> str:
    """The relative path from the folder of a figure to a run."""
    return os.path.relpath(place, out)
