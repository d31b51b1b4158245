"""ImageNet-100's whole path on generated photos: written, decoded, trained at 224 x 224, killed, resumed, measured."""

import io
import json
import runpy
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.commands import succeeds
from helpers.processes import LIMIT, start

from gcab.data import imagenet100
from gcab.data.folder import labelled_files

pytestmark = pytest.mark.repeats

ROOT = Path(__file__).parents[2]
TINY = ["--method", "finetune", "--profile", "official", "--device", "cpu", "--encoder.width", "16"]
TINY += [
    "--encoder.heads",
    "2",
    "--encoder.blocks",
    "1",
    "--encoder.patch",
    "32",
    "--training.epochs",
    "2",
    "--augment.randaugment",
    "false",
]
TINY += ["--training.batch_size", "20", "--training.warmup_epochs", "0", "--training.lr", "0.001"]


def script(name: str, *arguments: str | Path) -> str:
    """What a program of benchmarks/ prints, called within this process."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(ROOT / "benchmarks" / name), run_name="__main__")
    return out.getvalue()


def make(folder: Path, *options: str) -> str:
    return script("make_imagenet100.py", folder, *options)


def test_photos_follow_from_the_seed_and_differ_by_class(tmp_path: Path) -> None:
    options = ("--classes", "4", "--train", "6", "--test", "3")
    assert make(tmp_path / "one", *options).startswith("36 photos of 4 classes")
    make(tmp_path / "same", *options)
    make(tmp_path / "other", *options, "--seed", "2")
    photo = Path("train", "class-002", "00001.jpg")
    content = (tmp_path / "one" / photo).read_bytes()
    assert content == (tmp_path / "same" / photo).read_bytes()
    assert content != (tmp_path / "other" / photo).read_bytes()
    assert (tmp_path / "one" / "classes.txt").read_text().split() == [f"class-{label:03d}" for label in range(4)]
    assert len(labelled_files(tmp_path / "one" / "val")[0]) == 12
    train, test = (imagenet100.load(tmp_path / "one", split, 224, 4) for split in ("train", "test"))
    colours = torch.stack([train.images[train.labels == label].float().mean(dim=(0, 2, 3)) for label in range(4)])
    nearest = torch.cdist(test.images.float().mean(dim=(2, 3)), colours).argmin(dim=1)
    assert (nearest == test.labels).float().mean() > 0.5  # by colour alone; a chance of a quarter


def records(runs: Path, kind: str) -> list[dict[str, Any]]:
    files = list(runs.rglob("metrics.jsonl"))
    lines = files[0].read_bytes().split(b"\n")[:-1] if files else []
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_a_run_of_two_tasks_at_224_pixels_killed_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "photos", "--train", "2", "--test", "1")
    train = ["train", "imagenet100/2", "--data", str(tmp_path / "photos"), *TINY, "--runs"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with start(*train, broken) as process:
        deadline = time.monotonic() + LIMIT
        while not any(record["task"] == 2 for record in records(broken, "epoch")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
    assert records(broken, "final") == []
    assert "continuing: task 2" in succeeds(capsys, *train, broken)
    succeeds(capsys, *train, whole)
    for kind, keys in (("epoch", ("task", "epoch", "losses", "lr")), ("task", ("tag", "taw"))):
        both = [[[record[key] for key in keys] for record in records(runs, kind)] for runs in (whole, broken)]
        assert len(both[0]) == {"epoch": 4, "task": 2}[kind]
        assert both[0] == both[1]


@pytest.mark.parametrize("compared", [True, False])
def test_the_measurement_runs_without_a_gpu(tmp_path: Path, compared: bool) -> None:
    if not compared:
        make(tmp_path, "--classes", "10", "--train", "1", "--test", "1")
    what = ("--steps", "--profile", "official") if compared else (tmp_path, "--workers", "1", "2")
    common = ("--device", "cpu", "--quick", "--rounds", "1", "--out", tmp_path / "result.json")
    script("imagenet100_speed.py", *what, *common)
    result = json.loads((tmp_path / "result.json").read_text())
    if compared:
        for row in result["steps"].values():
            assert row["tokens"] == {"cifar100/10": 64, "tiny-imagenet/10": 64}
            assert row["batch_size"] == {"cifar100/10": 8, "tiny-imagenet/10": 8}
            assert row["tiny_over_cifar"] > 0
        return
    assert [(row["workers"], row["images"]) for row in result["decoding"]] == [(1, 10), (2, 10)]
    assert result["training"]["tokens"] == 196
    assert set(result["training"]["step_seconds"]) == set(result["training"]["share_of_time_waiting"])
    assert result["training"]["peak_host_bytes"] > 10**8
    assert result["schedule"]["epochs"] == 500
    assert result["schedule"]["training_hours"] > 0
    assert not list(tmp_path.glob("tmp*")), "the cache of the measurement is gone"
