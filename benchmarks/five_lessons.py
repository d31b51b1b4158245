"""What `gcab learn` is worth lesson after lesson, on photos it has not learned, beside simpler ways.

    python benchmarks/five_lessons.py cifar100 --data DIR --work FOLDER --out lessons.json --seeds 1 2 3 4 5
    python benchmarks/five_lessons.py PHOTOS --work FOLDER --out lessons.json --photos 200 10

PHOTOS is a folder with a folder of photos per class, or a data set of `gcab train`, whose images become PNG files in
FOLDER. A seed chooses the classes, their photos and the training. Ways to learn:

    default     gcab learn
    flip        gcab learn --set augment.flip=true
    eye         gcab learn --method eye
    pretrained  gcab learn --encoder FILE
    mean        the nearest class mean of raw pixels; nothing is held out
    joint       gcab learn once, with all classes: training on everything at once

After every lesson the model is asked about test photos of all classes so far, and of as many classes that it never
learns. What the JSON file has already is not run again.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gcab import ContinualClassifier, teach
from gcab.classifier.model_folder import ModelFolder
from gcab.classifier.photos import Photos
from gcab.classifier.testing import known_photos, unknown_photos
from gcab.classifier.wishes import Wishes
from gcab.data.folder import labelled_files
from gcab.data.images import ImageSet, Split
from gcab.data.registry import DATASETS
from gcab.methods.eye import Eye
from gcab.version import VERSION

SUFFIXES = (".jpg", ".jpeg", ".png")
STRANGE = 10  # photos of each class that is never learned
WAYS: dict[str, Wishes] = {
    "default": {},
    "flip": {"settings": {"augment.flip": True}},
    "eye": {"method": "eye"},
    "pretrained": {},
    "mean": {},
    "joint": {},
}
Record = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parsed(given)
    stored = json.loads(options.out.read_text()) if options.out.exists() else {"commands": [], "runs": []}
    for seed in options.seeds:
        for way in options.ways:
            identity = identity_of(options, seed, way)
            if any(identity.items() <= run.items() for run in stored["runs"]):
                continue
            photos = chosen_photos(options, seed)
            started = time.monotonic()
            run = {**identity, "lessons": list(lessons_of(options, photos, seed, way)), "version": VERSION}
            command = shlex.join(["python", "benchmarks/five_lessons.py", *given])
            stored["commands"] += [] if command in stored["commands"] else [command]
            stored["runs"].append(run)
            options.out.write_text(json.dumps(stored, indent=1) + "\n")
            print(f"{way}, seed {seed}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    show(stored["runs"])
    return 0


def parsed(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="PHOTOS", help=f"a folder, or one of {', '.join(DATASETS)}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the data set is, or is to be")
    parser.add_argument("--work", type=Path, required=True, metavar="FOLDER", help="for photos and models")
    parser.add_argument("--out", type=Path, required=True, metavar="JSON", help="all that was measured")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["default", "eye", "mean"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="(1)")
    parser.add_argument("--lessons", type=int, default=5, metavar="N", help="(5)")
    parser.add_argument("--classes", type=int, default=4, metavar="N", help="of each lesson (4)")
    parser.add_argument(
        "--photos", type=int, nargs="+", default=[60], metavar="N", help="of each class, several take turns (60)"
    )
    parser.add_argument("--tests", type=int, default=100, metavar="N", help="photos of each class to test with (100)")
    parser.add_argument("--encoder", metavar="FILE", help="of the way 'pretrained'")
    options = parser.parse_args(given)
    if "pretrained" in options.ways and not options.encoder:
        parser.error("the way 'pretrained' needs --encoder")
    return options


def identity_of(options: argparse.Namespace, seed: int, way: str) -> Record:
    """What tells a run from all others."""
    names = ("lessons", "classes", "photos", "tests")
    asked = {f"{name}_asked": getattr(options, name) for name in names}
    return {"source": Path(options.source).name, **asked, "seed": seed, "way": way}


@dataclass
class Chosen:
    """The photos of a seed, in folders with a folder per class."""

    lessons: list[Path]
    together: Path  # all lessons as one
    test: Path
    strange: Path  # of classes that are never learned


def chosen_photos(options: argparse.Namespace, seed: int) -> Chosen:
    """Photos of classes drawn at random; what is there already is not written again."""
    many = "-".join(map(str, options.photos))
    name = f"{Path(options.source).name}-{options.lessons}x{options.classes}-{many}-{options.tests}-seed{seed}"
    folder = options.work / name
    lessons = [folder / f"lesson-{number + 1}" for number in range(options.lessons)]
    chosen = Chosen(lessons, folder / "together", folder / "test", folder / "strange")
    if not folder.exists():
        draft = folder.with_name(f"{name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        write_photos(options, draft, np.random.default_rng(seed))
        draft.rename(folder)
    return chosen


def write_photos(options: argparse.Namespace, folder: Path, random: np.random.Generator) -> None:
    source, learned = source_of(options), options.lessons * options.classes
    classes = random.permutation(source.classes)[: 2 * learned].tolist()
    for place, name in enumerate(classes):
        wanted = options.photos[place % len(options.photos)] if place < learned else 0
        train, test = source.drawn(name, wanted, options.tests if place < learned else STRANGE, random)
        lesson = f"lesson-{place // options.classes + 1}"
        for parts, numbers in (((lesson, "together"), train), (("test" if place < learned else "strange",), test)):
            for number in numbers:
                for part in parts:
                    (folder / part / name).mkdir(parents=True, exist_ok=True)
                    source.write(number, folder / part / name)


class SetSource:
    """A data set of `gcab train`: its training images to learn, its test images to test with."""

    def __init__(self, name: str, root: Path | None) -> None:
        entry = DATASETS[name]
        splits: tuple[Split, ...] = ("train", "test")
        self.sets: dict[Split, ImageSet] = {split: entry.load(root, split, entry.size) for split in splits}
        self.classes = sorted(self.sets["train"].classes)

    def drawn(self, name: str, train: int, test: int, random: np.random.Generator) -> tuple[list[Any], list[Any]]:
        found = []
        for (split, images), count in zip(self.sets.items(), (train, test), strict=True):
            own = (images.labels == images.classes.index(name)).nonzero().flatten().tolist()
            found.append([(split, int(number)) for number in random.permutation(own)[:count]])
        return found[0], found[1]

    def write(self, photo: Any, folder: Path) -> None:
        split, number = photo
        pixels = self.sets[split].images[number].permute(1, 2, 0).numpy()
        grey = bool((pixels == pixels[:, :, :1]).all())
        Image.fromarray(pixels[:, :, 0] if grey else pixels).save(folder / f"{number:05d}.png", compress_level=1)


class FolderSource:
    """A folder with a folder of photos per class: what is not learned may be tested with."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.classes = folder, sorted(path.name for path in folder.iterdir() if path.is_dir())

    def drawn(self, name: str, train: int, test: int, random: np.random.Generator) -> tuple[list[Any], list[Any]]:
        files = sorted(file for file in (self.folder / name).rglob("*") if file.suffix.lower() in SUFFIXES)
        drawn = [files[place] for place in random.permutation(len(files))]
        return drawn[:train], drawn[train : train + test]

    def write(self, photo: Any, folder: Path) -> None:
        shutil.copy(photo, folder)


def source_of(options: argparse.Namespace) -> SetSource | FolderSource:
    if options.source in DATASETS:
        return SetSource(options.source, options.data)
    return FolderSource(Path(options.source))


def lessons_of(options: argparse.Namespace, chosen: Chosen, seed: int, way: str) -> Iterator[Record]:
    """What is measured after each lesson."""
    folders = [chosen.together] if way == "joint" else chosen.lessons
    if way == "mean":
        yield from class_means(folders, chosen.test)
        return
    model = chosen.test.parent / f"{way}.gcab"
    shutil.rmtree(model, ignore_errors=True)
    wishes: Wishes = {**WAYS[way], "device": "cpu", "seed": seed}
    if way == "pretrained":
        wishes["encoder"] = options.encoder
    exam: Exam | None = None
    for folder in folders:
        started = time.monotonic()
        result = teach(model, folder, **wishes)
        seconds = time.monotonic() - started
        learner = ContinualClassifier.load(model, "cpu")
        exam = exam or Exam(chosen, learner.image_size)
        size = sum(file.stat().st_size for file in list(ModelFolder(model).generations().values())[-1].iterdir())
        yield {
            **exam.taken(learner),
            "expected": [entry.now for entry in learner.taught],
            "seconds": round(seconds, 3),
            "bytes": size,
            "verdict": result.verdict,
        }


class Exam:
    """Test photos of all classes, in memory."""

    def __init__(self, chosen: Chosen, size: int) -> None:
        self.known = Photos.read(*labelled_files(chosen.test), size, False)
        there = chosen.strange.exists()
        self.strange = Photos.read(*labelled_files(chosen.strange), size, False).pixels if there else None
        self.features: dict[str, Tensor] = {}  # of eyes, which never change

    def taken(self, learner: ContinualClassifier) -> Record:
        """How a model does with classes it has learned, and whether it tells others."""
        places = {str(name): place for place, name in enumerate(learner.classes)}
        learned = torch.tensor([name in places for name in self.known.labels])
        labels = torch.tensor([places[name] for name in self.known.labels if name in places])
        logits = self.logits(learner, "known", self.known.pixels)[learned]
        figures = known_photos(learner, logits, labels)
        parts = {"photos", "accuracy", "confidence", "calibration_error", "lessons"}
        unknown = None
        if self.strange is not None:
            strange = self.logits(learner, "strange", self.strange)
            own = torch.arange(len(logits) + len(strange)) < len(logits)
            unknown = unknown_photos(learner, torch.cat([logits, strange]), own)
        return {
            **{name: value for name, value in figures.items() if name in parts},
            "temperature": learner.calibration.temperature,
            "unknown": unknown,
            "right": packed(logits.argmax(dim=1) == labels),
        }

    @torch.inference_mode()
    def logits(self, learner: ContinualClassifier, which: str, pixels: Tensor) -> Tensor:
        method = learner.method
        if not isinstance(method, Eye):
            return learner.logits(pixels)
        if which not in self.features:
            self.features[which] = torch.cat([method.eye.eye.unrounded(part) for part in pixels.split(100)])
        return method.eye.ridge(self.features[which])


def class_means(folders: Sequence[Path], test: Path) -> Iterator[Record]:
    """The nearest class mean of raw pixels."""
    files, names = labelled_files(test)
    side = min(Image.open(files[0]).size)
    tests, means = Photos.read(files, names, side, False), dict[str, Tensor]()
    x = tests.pixels.flatten(1).float()
    for place, folder in enumerate(folders):
        started = time.monotonic()
        photos = Photos.read(*labelled_files(folder), side, False)
        for name in sorted(set(photos.labels)):
            own = torch.tensor([label == name for label in photos.labels])
            means[name] = photos.pixels[own].flatten(1).float().mean(dim=0)
        known, seconds = list(means), time.monotonic() - started
        learned = torch.tensor([name in means for name in tests.labels])
        labels = torch.tensor([known.index(name) for name in tests.labels if name in means])
        right = torch.cdist(x[learned], torch.stack(list(means.values()))).argmin(dim=1) == labels
        each = [labels // (len(known) // (place + 1)) == lesson for lesson in range(place + 1)]
        yield {
            "photos": len(labels),
            "accuracy": round(100 * float(right.double().mean()), 2),
            "lessons": [round(100 * float(right[own].double().mean()), 2) for own in each],
            "seconds": round(seconds, 3),
            "bytes": 4 * len(means) * x.shape[1],
            "right": packed(right),
        }


def packed(right: Tensor) -> str:
    """Which test photos were named right, as text."""
    return np.packbits(right.numpy()).tobytes().hex()


def paired(one: Record, other: Record) -> tuple[float, float]:
    """By how many points one way is above the other after a lesson, on the same photos, and its standard error."""
    a, b = (np.unpackbits(np.frombuffer(bytes.fromhex(way["right"]), np.uint8)).astype(int) for way in (one, other))
    difference = (a - b)[: one["photos"]]
    return 100 * float(difference.mean()), 100 * float(difference.std() / len(difference) ** 0.5)


def show(runs: Sequence[Record]) -> None:
    """A line for each run: accuracy over all classes after every lesson, and what the last one tells."""
    table = Table(box=None, pad_edge=False)
    heads = ("photos", "a class", "seed", "way", "after each lesson", "above the eye", "confidence", "error", "AUROC")
    for head in (*heads, "expected", "first lesson", "seconds", "MB"):
        table.add_column(head, no_wrap=True)
    for run in sorted(
        runs, key=lambda run: (run["source"], run["photos_asked"], run["seed"], list(WAYS).index(run["way"]))
    ):
        table.add_row(*line_of(run, eye_of(runs, run)))
    Console(width=220).print(table, highlight=False)


def eye_of(runs: Sequence[Record], run: Record) -> Record | None:
    wanted = {key: run[key] for key in run if key.endswith("_asked") or key in ("source", "seed")}
    return next((one for one in runs if {**wanted, "way": "eye"}.items() <= one.items()), None)


def line_of(run: Record, eye: Record | None) -> list[str]:
    lessons, last = run["lessons"], run["lessons"][-1]
    gain = "" if eye in (None, run) else "{:+.1f} ± {:.1f}".format(*paired(last, eye["lessons"][-1]))
    told, unknown = "confidence" in last, last.get("unknown")
    expected = [value for value in last.get("expected", ()) if value is not None]
    return [
        run["source"],
        " ".join(map(str, run["photos_asked"])),
        str(run["seed"]),
        run["way"],
        " ".join(f"{lesson['accuracy']:5.1f}" for lesson in lessons),
        gain,
        f"{last['confidence']:.1f}" if told else "",
        f"{100 * last['calibration_error']:.1f}" if told else "",
        f"{unknown['auroc']:.2f}" if unknown else "",
        f"{sum(expected) / len(expected):.1f}" if len(expected) == len(lessons) else "",
        f"{lessons[0]['lessons'][0]:.1f} > {last['lessons'][0]:.1f}",
        f"{sum(lesson['seconds'] for lesson in lessons):.0f}",
        f"{last['bytes'] / 1e6:.1f}",
    ]


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())
