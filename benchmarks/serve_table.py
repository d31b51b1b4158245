"""The load of `serve_load.py` on GCAB, on GCAB-Fast and on both as ONNX files, in one table.

    python benchmarks/serve_table.py --work FOLDER --encoder small --clients 64 --seconds 60 --json table.json
    python benchmarks/serve_table.py GCAB=birds.gcab ONNX=birds.onnx --seconds 10

Rows are NAME=TARGET, where a target is a model folder, served by `gcab serve`; an ONNX file, served by the plain
server of `serve_onnx.py`; or an address. Without any row, models are made in --work or found there: ten lessons of ten
classes of generated photos of 32 pixels, hardly trained, as speed does not depend on what was learned.

Clients and server share the machine. The exit code is 1 if any answer was neither 200 nor 429.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table
from serve_load import good, measure, photo, served

from gcab.cli.main import main as gcab
from gcab.version import VERSION

LESSONS, CLASSES, PHOTOS, SIZE = 10, 10, 2, 32


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="NAME=TARGET")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="for models, where no row is given")
    parser.add_argument("--encoder", default="small", help="of these models: tiny, small or paper (small)")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file as well")
    options = parser.parse_args(arguments)
    if bool(options.rows) == bool(options.work) or not all("=" in row for row in options.rows):
        parser.error("give either rows, each as NAME=TARGET, or --work")
    rows = dict(row.split("=", 1) for row in options.rows) or make_models(options.work / options.encoder)
    measured: dict[str, Any] = {}
    for name, target in rows.items():
        with served(target, ()) as url:
            measured[name] = asyncio.run(measure(url, options.clients, options.seconds, photo(), None))
    show(measured)
    report = {
        "versions": {"gcab": VERSION, "python": platform.python_version()},
        "cores": len(os.sched_getaffinity(0)),
        "encoder": None if options.rows else options.encoder,
        "measured": measured,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(map(good, measured.values())) else 1


def make_models(work: Path) -> dict[str, str]:
    """Learned, distilled and exported with the commands that a person would use; what is there is not made again."""
    model, fast, photos = work / "model.gcab", work / "fast.gcab", work / "photos"
    if not fast.exists():
        shutil.rmtree(work, ignore_errors=True)
        random = np.random.default_rng(1)
        size = ("--size", SIZE, "--encoder", work.name)
        training = ("--epochs", 1, "--held-out", 0, "--progress", "none", "--device", "cpu")
        for lesson in range(LESSONS):
            for number in range(CLASSES):
                place = photos / f"{lesson}" / f"class {lesson}{number}"
                place.mkdir(parents=True)
                for index in range(PHOTOS):
                    pixels = random.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
                    Image.fromarray(pixels).save(place / f"{index}.png")
            command("learn", model, photos / f"{lesson}", *size, *training)
        short = ("--set", "options.distillation_steps=2", "--set", "options.views=1")
        command("distill", model, photos / f"{LESSONS - 1}", "--out", fast, *short, "--device", "cpu")
    targets = {"GCAB": str(model), "GCAB-Fast": str(fast)}
    for name, source in ((f"{name}, onnxruntime", Path(source)) for name, source in tuple(targets.items())):
        targets[name] = str(source.with_suffix(".onnx"))
        if not Path(targets[name]).exists():
            command("export", source, targets[name], "--with-preprocessing")
    return targets


def command(*arguments: str | int | Path) -> None:
    if code := gcab([str(argument) for argument in arguments]):
        sys.exit(code)


def show(measured: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in (
        "requests/s",
        "p50 ms",
        "p99 ms",
        "answers by status",
        "MiB before",
        "after 1 s",
        "halfway",
        "at the end",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, figures in measured.items():
        memory = [f"{mebi:.0f}" for mebi in figures["server_memory_mib"].values()]
        statuses = ", ".join(f"{status}: {count}" for status, count in figures["statuses"].items())
        speed = [str(figures[key]) for key in ("requests_per_second", "p50_ms", "p99_ms")]
        table.add_row(name, *speed, statuses, *memory)
    Console(width=140).print(table, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
