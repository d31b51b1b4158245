"""CIFAR-100 as ten lessons of photos for `gcab learn`, beside the same tasks as research runs of `gcab train`.

    python benchmarks/cifar100_lessons.py --data DIR --work FOLDER --epochs 5 --out lessons.json
    python benchmarks/cifar100_lessons.py --data DIR --work FOLDER --encoder paper --recipe photos --device cuda

DIR is the one of `gcab train cifar100/10 --data DIR`. The images become PNG files, a folder per class in folders
lesson-01 to lesson-10, in the class order of that run. `gcab learn` is taught them one after another, then `gcab
predict` is asked about every test image as a file. Two research runs take every setting from the taught model:

    folder    gcab train folder/10, from a table of the same files: same pixels, same order, same normalisation, so
              on one device and with nothing held out it must give the same accuracies to the last digit
    cifar100  gcab train cifar100/10, from the published arrays: the usual research run

ACC_TAG is the share of test images named correctly among all 100 classes, ACC_TAW the same within the ten classes of
the image's own lesson (per cent). Settings that no option here has go to all of them with --set. The same command
continues what was interrupted.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.table import Table

from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.model_folder import ModelFolder
from gcab.cli.main import main as gcab_main
from gcab.config import leaves, resolve
from gcab.data.cifar100 import load
from gcab.data.images import Split
from gcab.data.scenario import Scenario
from gcab.runs.folder import RunFolder
from gcab.version import VERSION

SCENARIO, SIZE = "cifar100/10", 32
IMAGES = 500  # of each class, in the published training split
SPLITS: tuple[Split, ...] = ("train", "test")
SHARED = ("encoder.", "training.", "augment.", "options.")  # the settings that a research run takes from the model
DIFFERENCES = {
    "folder": "with images held out: which of each class they are",
    "cifar100": "normalisation (CIFAR-100's mean and deviation, not ImageNet's); order of a lesson's images before "
    "shuffling; with fewer than 500 images trained on: which of each class they are",
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parsed(given)
    photos = options.work / f"photos-{options.images_per_class}"
    lessons = write_photos(options.data, photos, options.images_per_class)
    measured = []
    for seed in options.seeds:
        model = options.work / f"seed-{seed}.gcab"
        measured.append({"path": "gcab learn", "seed": seed, **taught(options, photos, lessons, model, seed)})
        for name in options.beside:
            data = photos / "photos.csv" if name == "folder" else options.data
            figures = researched(options, name, data, model, seed)
            measured.append({"path": f"gcab train {name}/10", "seed": seed, **figures})
        show(measured)
    report = {
        "command": shlex.join(["python", "benchmarks/cifar100_lessons.py", *given]),
        "versions": {"gcab": VERSION, "python": platform.python_version()},
        "images_per_class": options.images_per_class,
        "held_out": options.held_out,
        "settings": shared_settings(options.work / f"seed-{options.seeds[0]}.gcab"),
        "still_different": {name: DIFFERENCES[name] for name in options.beside},
        "measured": measured,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def parsed(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="where CIFAR-100 is, or is to be")
    parser.add_argument("--work", type=Path, required=True, metavar="FOLDER", help="for photos, models and runs")
    parser.add_argument("--encoder", default="tiny", help="tiny, small or paper (tiny)")
    parser.add_argument("--recipe", default="plain", help="plain or photos (plain)")
    parser.add_argument("--epochs", type=int, default=5, metavar="N", help="of every lesson (5)")
    parser.add_argument(
        "--images-per-class", type=int, default=IMAGES, metavar="N", help=f"at most {IMAGES} ({IMAGES})"
    )
    parser.add_argument("--held-out", type=float, default=0.0, metavar="SHARE", help="of these, not trained on (0)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting of 'gcab train'")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="(1)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (auto)")
    parser.add_argument(
        "--beside", nargs="*", default=list(DIFFERENCES), choices=tuple(DIFFERENCES), help="research runs (both)"
    )
    parser.add_argument("--processes", action="store_true", help="run every command as a process of its own")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all figures to this file")
    options = parser.parse_args(given)
    if not 1 <= options.images_per_class <= IMAGES:
        parser.error(f"--images-per-class goes from 1 to {IMAGES}")
    return options


def write_photos(data: Path, photos: Path, images_per_class: int) -> list[Path]:
    """PNG files for every lesson and for testing, and a table of them all; returns the folders of the lessons.

    Their names begin with their place in the class order, because `gcab learn` takes classes in order of name.
    """
    splits = {split: load(data, split, SIZE) for split in SPLITS}
    classes = splits["train"].classes
    config = resolve(SCENARIO, "gcab")
    tasks = Scenario.build(config.scenario, config.seed, classes).tasks
    named = {name: f"{task.first + place:02d}-{name}" for task in tasks for place, name in enumerate(task.names)}
    lesson_of = {name: f"lesson-{task.index + 1:02d}" for task in tasks for name in task.names}
    rows = []
    for split, images in splits.items():
        most = images_per_class if split == "train" else len(images.labels)
        count: Counter[str] = Counter()
        for pixels, label in zip(images.images, images.labels.tolist(), strict=True):
            name = classes[label]
            if count[name] < most:
                place = Path(lesson_of[name] if split == "train" else "test", named[name], f"{count[name]:03d}.png")
                rows.append((place.as_posix(), named[name], split))
                count[name] += 1
                (photos / place).parent.mkdir(parents=True, exist_ok=True)
                if not (photos / place).exists():
                    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(photos / place, compress_level=1)
    with (photos / "photos.csv").open("w", newline="") as table:
        csv.writer(table).writerows([("path", "label", "split"), *sorted(rows)])
    return [photos / f"lesson-{task.index + 1:02d}" for task in tasks]


def taught(
    options: argparse.Namespace, photos: Path, lessons: Sequence[Path], model: Path, seed: int
) -> dict[str, Any]:
    """Ten times `gcab learn`, once `gcab predict`."""
    wishes = {
        "--encoder": options.encoder,
        "--size": SIZE,
        "--recipe": options.recipe,
        "--epochs": options.epochs,
        "--held-out": options.held_out,
        "--patience": 0,
        "--seed": seed,
        "--device": options.device,
        "--progress": "none",
    }
    flags = [str(part) for wish in wishes.items() for part in wish]
    flags += [part for setting in options.set for part in ("--set", setting)]
    done = len(ContinualClassifier.load(model, "cpu").tasks) if ModelFolder(model).generation is not None else 0
    for lesson in lessons[done:]:
        run("learn", model, lesson, *flags, processes=options.processes)
        print(f"seed {seed}: {lesson.name} at {time.strftime('%H:%M:%S')}", flush=True)
    learner = ContinualClassifier.load(model, "cpu")
    asked = (photos / "test", "--json", "--top", str(len(learner.classes)), "--device", options.device)
    lines = run("predict", model, *asked, processes=options.processes)
    seconds = sum(lesson.seconds or 0 for lesson in learner.taught)
    return {**accuracies([json.loads(line) for line in lines.splitlines()]), "seconds": round(seconds, 1)}


def accuracies(predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """In per cent: among all classes and within the lesson's own, in all and lesson by lesson."""
    asked, agnostic, aware, right_lesson = (Counter[int]() for _ in range(4))
    for prediction in predictions:
        truth = Path(prediction["file"]).parent.name
        ranked = [(guess["class"], guess["task"]) for guess in prediction["top"]]
        lesson = dict(ranked)[truth]
        asked[lesson] += 1
        agnostic[lesson] += ranked[0][0] == truth
        aware[lesson] += next(name for name, task in ranked if task == lesson) == truth
        right_lesson[lesson] += ranked[0][1] == lesson
    lessons = sorted(asked)
    tag, taw = ([100 * right[lesson] / asked[lesson] for lesson in lessons] for right in (agnostic, aware))
    return {
        "acc_tag": 100 * agnostic.total() / asked.total(),
        "acc_taw": sum(taw) / len(taw),
        "task_identification": 100 * right_lesson.total() / asked.total(),
        "tag": tag,
        "taw": taw,
    }


def researched(options: argparse.Namespace, name: str, data: Path, model: Path, seed: int) -> dict[str, Any]:
    """A run of `gcab train` with the settings that the taught model was taught with."""
    if name == "folder":
        place = {"scenario.order": "sorted", "scenario.image_size": SIZE, "scenario.validation": options.held_out}
    else:
        place = {"scenario.validation": 1 - options.images_per_class * (1 - options.held_out) / IMAGES}
    changes = {**shared_settings(model), **place}
    flags = [f"--{key}={value}" for key, value in changes.items()]
    path = options.work / f"run-{name}-{seed}"
    run(
        *("train", f"{name}/10", "--data", data, "--run", path, "--seed", seed, "--device", options.device, *flags),
        processes=options.processes,
    )
    records = RunFolder.open(path).records("task")
    final = RunFolder.open(path).final()
    assert final is not None
    names = ("acc_tag", "acc_taw", "task_identification")
    figures = {**{name: final[name] for name in names}, "tag": records[-1]["tag"], "taw": records[-1]["taw"]}
    return {**figures, "seconds": round(final["seconds"], 1)}


def shared_settings(model: Path) -> dict[str, Any]:
    """What decides how a model learns, by dotted key."""
    config = ContinualClassifier.load(model, "cpu").config
    return {key: value for key, _, value in leaves(config) if key.startswith(SHARED)}


def run(*arguments: str | int | Path, processes: bool) -> str:
    """What a gcab command prints; where it fails, this program ends, too."""
    command = [str(argument) for argument in arguments]
    if processes:
        done = subprocess.run([sys.executable, "-m", "gcab", *command], stdout=subprocess.PIPE, text=True)
        code, printed = done.returncode, done.stdout
    else:
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            code = gcab_main(command)
        printed = stream.getvalue()
    if code:
        sys.exit(code)
    return printed


def show(measured: Sequence[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "seed", "ACC_TAG", "ACC_TAW", "seconds", "TAG of each lesson", "TAW of each lesson"):
        table.add_column(heading, no_wrap=True)
    for figures in measured:
        means = [f"{figures[name]:.2f} %" for name in ("acc_tag", "acc_taw")]
        rows = [" ".join(f"{value:4.1f}" for value in figures[name]) for name in ("tag", "taw")]
        table.add_row(figures["path"], str(figures["seed"]), *means, f"{figures['seconds']:.0f}", *rows)
    Console(width=200).print(table, highlight=False)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())
