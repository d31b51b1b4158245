"""kill -9 at any moment of a lesson: the model is always readable, and the same lesson ends as if left alone."""

import contextlib
import json
import multiprocessing
import random
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.photos import WEEK1, WEEK2, make_photos
from helpers.processes import LIMIT, gcab, start
from helpers.settings import TINY_GCAB, set_flags

from gcab import ContinualClassifier, ModelFolder

pytestmark = [pytest.mark.repeats, pytest.mark.usefixtures("forked_interpreters")]

KILLS = 20
EPOCHS = 6


def lesson(model: Path, photos: Path, events: Connection | None = None) -> None:
    """What each process does: a checkpoint after every epoch, so that there is much to interrupt."""
    from gcab.classifier.teaching import teach

    tell = events.send if events is not None else lambda _: None
    settings: dict[str, Any] = {
        "device": "cpu",
        "epochs": EPOCHS,
        "settings": TINY_GCAB,
        "patience": 0,
        "checkpoint_seconds": 0.0,
    }
    teach(model, photos, **settings, progress=tell)


def killed_after(model: Path, photos: Path, events: int, seconds: float) -> bool:
    """Whether a process was still there to be killed, so long after it told of so many events.

    It is forked from a process that has torch loaded already.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gcab.classifier.teaching"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lesson, args=(model, photos, sender))
    process.start()
    sender.close()
    with contextlib.suppress(EOFError):  # it has come to its end
        for _ in range(events):
            assert receiver.poll(LIMIT)
            receiver.recv()
    process.join(seconds)
    process.kill()
    process.join(LIMIT)
    return process.exitcode == -9


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, and a model that was left alone."""
    root = tmp_path_factory.mktemp("world")
    make_photos(root / "week1", WEEK1)
    make_photos(root / "week2", WEEK2, count=40, seed=1)
    lesson(root / "alone", root / "week1")
    lesson(root / "killed", root / "week1")
    lesson(root / "alone", root / "week2")
    return root


def weights(model: Path) -> bytes:
    return (ModelFolder(model).current() / "weights.safetensors").read_bytes()


def test_a_lesson_killed_at_twenty_moments(world: Path) -> None:
    model, photos = world / "killed", world / "week2"
    asked = sorted((world / "week1").rglob("*.png"))
    before = ContinualClassifier.load(model, device="cpu").logits(asked)
    chance, kills, finished, continued = random.Random(1), 0, 0, 0
    while kills < KILLS:
        kills += killed_after(model, photos, events=chance.randrange(EPOCHS), seconds=chance.choice([0, 0.01, 0.1]))
        continued += (model / "work").exists()
        learner = ContinualClassifier.load(model, device="cpu")  # always readable
        if learner.generation == 1:
            assert learner.classes == [*WEEK1]
            assert torch.equal(learner.logits(asked), before)
        else:
            finished += 1
            assert learner.classes == [*WEEK1, *WEEK2]
            assert weights(model) == weights(world / "alone")
            assert ModelFolder(model).undo() == 1
    assert finished >= 1  # kills came late enough to see the writing
    assert continued > 5  # and early enough to see the learning
    lesson(model, photos)
    assert weights(model) == weights(world / "alone")
    assert [entry.name for entry in model.rglob(".*")] == []
    assert not (model / "work").exists()


def test_the_command_killed_in_the_middle_is_given_again(world: Path, tmp_path: Path) -> None:
    arguments = [
        "learn",
        str(tmp_path / "m"),
        str(world / "week1"),
        "--epochs",
        "400",
        "--patience",
        "0",
        *set_flags(TINY_GCAB),
    ]
    with start(*arguments, "--progress", "json") as process:
        told = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.kill()
    assert [event["event"] for event in told] == ["start", "epoch", "epoch"]
    assert ModelFolder(tmp_path / "m").generation is None
    again = gcab(*arguments[:4], "3", "--patience", "0", *set_flags(TINY_GCAB))
    assert (again.returncode, again.stderr) == (0, "")
    assert "an interrupted lesson of other photos or settings is given up: circle, square" in again.stdout
    assert "generation 1: learned circle, square in 3 epochs" in again.stdout
    assert ContinualClassifier.load(tmp_path / "m").classes == [*WEEK1]
