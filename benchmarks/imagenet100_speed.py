"""What ImageNet-100 at 224 x 224 costs: decoding, training from the cache, waiting, memory, the paper's schedule.

    python benchmarks/make_imagenet100.py DIR --train 130
    python benchmarks/imagenet100_speed.py DIR --workers 4 16 --out h200-imagenet100.json
    python benchmarks/imagenet100_speed.py --steps --out h200-tiny-imagenet.json   # Tiny-ImageNet's step and CIFAR's

`--profile official` takes the authors' settings. `--quick` takes a tiny network, to try it where there is no GPU.
Steps are recorded on a GPU and plain elsewhere.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from gcab.bench.clock import forget_peak, peak_bytes, seconds_of, wait_for
from gcab.bench.workload import growing, random_images
from gcab.config import RunConfig, resolve
from gcab.data import decoders
from gcab.data.augment import Augment
from gcab.data.cache import ELSEWHERE, watched
from gcab.data.imagenet100 import load
from gcab.data.tasks import TaskImages
from gcab.methods.method import Method
from gcab.profiles import DEFAULT_PROFILE, PROFILES
from gcab.seeds import generator, seeded
from gcab.training.feed import Feed
from gcab.training.recorded import RecordedSteps
from gcab.training.schedule import make_optimiser
from gcab.training.step import PlainSteps, Step

TRAIN, TEST, TASKS = 1300, 50, 10  # images of each class of ImageNet-100, and the paper's tasks
QUICK = {
    "encoder.width": 24,
    "encoder.heads": 4,
    "encoder.blocks": 1,
    "training.batch_size": 8,
    "options.eye": 64,
}

Run = Callable[[], object]


def settings(scenario: str, profile: str, quick: bool) -> RunConfig:
    known = resolve(scenario, "gcab", profile)
    changes = {key: value for key, value in QUICK.items() if key != "options.eye" or known.options.eye}
    return resolve(scenario, "gcab", profile, changes=changes if quick else {})


def epoch_of(
    config: RunConfig, method: Method, data: TaskImages, device: torch.device, resident: bool
) -> tuple[Run, int]:
    """A call that trains an epoch, and how many steps it has."""
    training = config.training
    feed = Feed(data, training.batch_size, device, resident)
    method.train().zero_grad(set_to_none=True)
    optimiser, random = make_optimiser(training, method.parameters()), torch.Generator(device)
    augment = Augment(config.augment, method.setting.mean, method.setting.std)
    bfloat16 = training.in_bfloat16(on_gpu=device.type == "cuda")
    step = Step(method, optimiser, augment, random, training.clip, bfloat16)
    steps = RecordedSteps(step, feed) if device.type == "cuda" else PlainSteps(step, feed)
    order = feed.order(generator(config.seed, "speed"))

    def run() -> None:
        with seeded(config.seed, "speed"):
            steps.run(order)

    return run, feed.steps


def in_turns(ways: dict[str, tuple[Run, int]], device: torch.device, rounds: int) -> dict[str, float]:
    """Median seconds of a step of each way; a machine that slows down for a while slows them all."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, (run, steps) in ways.items():
            seconds = seconds_of(run, device) / steps
            if number:  # the first warms up
                samples[name].append(seconds)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def decoding(root: Path, cache: str, size: int, workers: int) -> tuple[dict[str, Any], TaskImages, int]:
    """The training images into a new cache, by so many processes at most, and again from it."""
    os.environ[ELSEWHERE], decoders.MOST = cache, workers
    classes = sum(1 for line in (root / "classes.txt").read_text().splitlines() if line.strip())
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with watched(lambda done, total: print(f"\rdecoded {done} of {total}", end="", file=sys.stderr)):
        found = load(root, "train", size, classes)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    found = load(root, "train", size, classes)
    count = len(found.labels)
    row = {
        "images": count,
        "workers": workers,
        "seconds": seconds,
        "images_per_second": count / seconds,
        "cpu_seconds_of_processes": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "cores": os.cpu_count(),
        "cache_bytes": found.images.nbytes,
        "second_start_seconds": time.perf_counter() - start,
    }
    return row, TaskImages(found.images, found.labels), classes


def training(config: RunConfig, found: TaskImages, classes: int, device: torch.device, rounds: int) -> dict[str, Any]:
    """Steps of the first and of a later task, with the images on the device and streamed from the cache."""
    seconds: dict[str, dict[str, float]] = {}
    peaks: dict[str, int | None] = {}
    for task, method in growing(config, device, 2):
        own = found.labels < min(task.classes, classes)
        data = TaskImages(found.images[own], task.first + found.labels[own])
        method.begin_task(task)
        ways = {}
        for way, resident in (("streamed", False), ("resident", True)):
            forget_peak(device)
            ways[way] = epoch_of(config, method, data, device, resident)
            ways[way][0]()
            wait_for(device)
            peaks[f"task {task.index + 1}, {way}"] = peak_bytes(device)
        seconds[f"task {task.index + 1}"] = in_turns(ways, device, rounds)
        method.eval()
    later = seconds["task 2"]
    return {
        "tokens": config.encoder.tokens(config.scenario.image_size),
        "width": config.encoder.width,
        "batch_size": config.training.batch_size,
        "step_seconds": seconds,
        "images_per_second": {way: config.training.batch_size / later[way] for way in later},
        "share_of_time_waiting": {task: 1 - ways["resident"] / ways["streamed"] for task, ways in seconds.items()},
        "peak_gpu_bytes": peaks,
        "peak_host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def schedule(config: RunConfig, decoded: dict[str, Any], trained: dict[str, Any], epochs: int) -> dict[str, Any]:
    """The hours of the paper's 500 epochs in 10 tasks, at the speed measured."""
    steps = 100 // TASKS * TRAIN // config.training.batch_size * epochs
    first, later = (trained["step_seconds"][f"task {number}"]["streamed"] for number in (1, 2))
    decode = 100 * (TRAIN + TEST) / decoded["images_per_second"]
    return {
        "epochs": epochs,
        "steps_of_a_task": steps,
        "decoding_hours": decode / 3600,
        "training_hours": steps * (first + (TASKS - 1) * later) / 3600,
    }


def two_data_sets(device: torch.device, profile: str, quick: bool, steps: int, rounds: int) -> dict[str, Any]:
    """A step of Tiny-ImageNet against one of CIFAR-100, with as many tokens and classes, crop and all."""
    rows: dict[str, Any] = {}
    for number in (1, 2):
        ways, tokens, batches = {}, {}, {}
        for scenario in ("cifar100/10", "tiny-imagenet/10"):
            config = settings(scenario, profile, quick)
            *_, (task, method) = growing(config, device, number)
            data = random_images(config, task, steps * config.training.batch_size)
            method.begin_task(task)
            ways[scenario] = epoch_of(config, method, data, device, resident=True)
            tokens[scenario] = config.encoder.tokens(config.scenario.image_size)
            batches[scenario] = config.training.batch_size
        seconds = in_turns(ways, device, rounds)
        ratio = seconds["tiny-imagenet/10"] / seconds["cifar100/10"]
        rows[f"task {number}"] = {
            "step_seconds": seconds,
            "tokens": tokens,
            "batch_size": batches,
            "tiny_over_cifar": ratio,
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", metavar="DIR", help="of make_imagenet100.py, or the real one")
    parser.add_argument("--steps", action="store_true", help="compare Tiny-ImageNet's step with CIFAR-100's instead")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=500, help="of the schedule (500)")
    parser.add_argument("--rounds", type=int, default=5, help="epochs of which the median is taken (5)")
    parser.add_argument("--profile", default=DEFAULT_PROFILE, choices=[*PROFILES])
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[decoders.MOST], help="decode by so many, each in turn"
    )
    parser.add_argument("--quick", action="store_true", help="a tiny network")
    parser.add_argument("--out", type=Path, metavar="FILE", help="instead of the standard output")
    given = parser.parse_args()
    device = torch.device(given.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    result: dict[str, Any] = {"device": name, "torch": torch.__version__, "profile": given.profile}
    result["quick"] = given.quick
    if given.steps:
        count = 20 if device.type == "cuda" else 2
        result["steps"] = two_data_sets(device, given.profile, given.quick, count, given.rounds)
    elif given.data is None:
        parser.error("give the folder of the photos, or --steps")
    else:
        config, rows = settings("imagenet100/10", given.profile, given.quick), []
        for number, workers in enumerate(given.workers, start=1):
            with TemporaryDirectory(dir=given.data) as cache:
                decoded, found, classes = decoding(given.data, cache, config.scenario.image_size, workers)
                rows.append(decoded)
                if number == len(given.workers):
                    result["training"] = training(config, found, classes, device, given.rounds)
        result["decoding"] = rows
        result["schedule"] = schedule(config, rows[-1], result["training"], given.epochs)
    written = json.dumps(result, indent=1) + "\n"
    if given.out:
        given.out.write_text(written)
    else:
        print(written, end="")


if __name__ == "__main__":
    main()
