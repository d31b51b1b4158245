"""Finding run folders.

A folder with `config.json` and `metrics.jsonl` is a run; a published one has `metrics.jsonl.gz`, which never grows.
A folder of figures has `runs.json` instead: the relative path of each run that they are made of.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from gcab.errors import GcabError
from gcab.runs.files import parsed

LOG, PACKED_LOG = "metrics.jsonl", "metrics.jsonl.gz"
RUN_LIST = "runs.json"


def is_run(path: Path) -> bool:
    return (path / "config.json").is_file() and any((path / log).is_file() for log in (LOG, PACKED_LOG))


def runs_below(path: Path) -> Iterator[Path]:
    """Walk down in a fixed order to the nearest run folders; nothing inside a run, or hidden, is looked at."""
    for folder, names, files in os.walk(path):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if is_run(Path(folder)):
            names.clear()
            yield Path(folder)
        elif RUN_LIST in files:
            names.clear()
            yield from listed_runs(Path(folder))


def listed_runs(folder: Path) -> Iterator[Path]:
    """The runs that the figures of a folder are made of, wherever they lie."""
    file = folder / RUN_LIST
    try:
        names = parsed(file.read_bytes())
        ways = [folder / name for name in names]
    except (OSError, ValueError, TypeError):
        raise GcabError(f"{file} is damaged: restore it, or draw the figure again.") from None
    for way in ways:
        if not is_run(way):
            raise GcabError(f"{file} names the run {way}, which is not there: restore it, or draw the figure again.")
        yield way
