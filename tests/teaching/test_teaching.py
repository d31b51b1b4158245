"""From photos to generations: what is recorded, when it stops, how it goes on, what it refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.photos import WEEK1, WEEK2, make_photos
from helpers.settings import TINY_GCAB, tiny
from PIL import Image

import gcab
from gcab import ContinualClassifier, ModelFolder
from gcab.classifier.lesson import Lesson
from gcab.classifier.logits import held_out_logits
from gcab.classifier.overview import overview
from gcab.classifier.photos import Photos
from gcab.classifier.teaching import Event, Result, Teaching, teach
from gcab.errors import GcabError
from gcab.methods.gcab_fast import GcabFast
from gcab.methods.method import Method


class StopError(Exception):
    """Stands for a process that ends here."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    make_photos(root / "week1", WEEK1)
    make_photos(root / "week2", WEEK2, seed=1)
    return root


@pytest.fixture(scope="module")
def taught_once(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("models") / "shapes.gcab"
    learn(model, photos / "week1")
    return model


@pytest.fixture(scope="module")
def taught_twice(taught_once: Path, photos: Path) -> Path:
    """As `learn` teaches the second week."""
    model = shutil.copytree(taught_once, taught_once.with_name("twice.gcab"))
    learn(model, photos / "week2")
    return model


@pytest.fixture(scope="module")
def interrupted_once(taught_once: Path, photos: Path) -> Path:
    """The same lesson, stopped after its first epoch."""
    model = shutil.copytree(taught_once, taught_once.with_name("interrupted.gcab"))
    with pytest.raises(StopError):
        learn(model, photos / "week2", progress=stop_after(1), checkpoint_seconds=0.0)
    return model


@pytest.fixture
def model(taught_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(taught_once, tmp_path / "shapes.gcab")


@pytest.fixture
def taught(taught_twice: Path, tmp_path: Path) -> Path:
    return shutil.copytree(taught_twice, tmp_path / "shapes.gcab")


@pytest.fixture
def interrupted(interrupted_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(interrupted_once, tmp_path / "shapes.gcab")


def learn(model: Path, photos: Path, **wishes: Any) -> Result:
    settings = tiny(wishes.get("method") or "gcab")
    return teach(model, photos, **{"epochs": 3, "device": "cpu", "settings": settings, "patience": 0, **wishes})


def weights(model: Path) -> bytes:
    return (ModelFolder(model).current() / "weights.safetensors").read_bytes()


def events(model: Path, photos: Path, **wishes: Any) -> list[Event]:
    seen: list[Event] = []
    learn(model, photos, progress=seen.append, **wishes)
    return seen


def notes(seen: list[Event]) -> list[str]:
    return [event["text"] for event in seen if event["event"] == "note"]


def stop_after(epochs: int) -> Callable[[Event], None]:
    def progress(event: Event) -> None:
        if event["event"] == "epoch" and event["epoch"] > epochs:
            raise StopError

    return progress


def accuracies_of(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """Held-out accuracies by epoch, whatever the images say."""
    left = iter([0.0, *values])  # the first is the estimate's
    monkeypatch.setattr(Lesson, "accuracy", lambda *_: next(left))


@pytest.mark.repeats
def test_a_model_is_made_and_taught_more(model: Path, photos: Path) -> None:
    result = learn(model, photos / "week2")
    assert (result.generation, result.classes, result.skipped) == (2, WEEK2, ())
    learner = gcab.ContinualClassifier.load(model, device="cpu")
    assert learner.classes == [*WEEK1, *WEEK2]
    assert (learner.generation, learner.image_size, learner.config.encoder.width) == (2, 8, 16)
    first, second = learner.taught
    assert (first.classes, first.images, first.held_out, first.epochs) == (2, 20, 4, 3)
    assert (second.classes, second.images, second.held_out, second.epochs) == (3, 30, 6, 3)
    assert second == result.taught
    assert second.when is not None
    assert second.when.endswith("+00:00")
    assert second.seconds is not None
    assert second.seconds > 0
    assert sorted(entry.name for entry in model.iterdir()) == ["generation-0001", "generation-0002", "lock"]


@pytest.mark.repeats
def test_the_recorded_accuracy_and_calibration_are_those_of_the_held_out_photos(
    taught_once: Path, taught_twice: Path, photos: Path
) -> None:
    learner = ContinualClassifier.load(taught_once, device="cpu")
    files = sorted((photos / "week2").rglob("*.png"))
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    held_out = learner.lesson(pixels, [file.parent.name for file in files], 0.2, None).material.held_out
    assert held_out is not None
    learner = ContinualClassifier.load(taught_twice, device="cpu")
    said = held_out_logits(learner.method, held_out, learner.device)
    right = (said.logits.argmax(dim=1) == held_out.labels).double().mean()
    assert learner.taught[1].accuracy == pytest.approx(100 * float(right))
    assert learner.calibration.images == 50
    logits = learner.logits(held_out.images)
    expected = (logits.double() / learner.calibration.temperature).softmax(dim=1)
    np.testing.assert_allclose(learner.predict_proba(held_out.images), expected, rtol=1e-4)
    assert (learner.unknown(held_out.images) <= 1).all()


@pytest.mark.repeats
def test_the_photos_are_learned(tmp_path: Path) -> None:
    make_photos(tmp_path / "week1", WEEK1, count=30)
    make_photos(tmp_path / "week2", WEEK2, count=30, seed=1)
    for week in ("week1", "week2"):
        teach(tmp_path / "m", tmp_path / week, device="cpu", epochs=15, settings=TINY_GCAB)
    make_photos(tmp_path / "test", (*WEEK1, *WEEK2), count=10, seed=2)
    learner = ContinualClassifier.load(tmp_path / "m", device="cpu")
    files = sorted((tmp_path / "test").rglob("*.png"))
    right = learner.predict(files) == [file.parent.name for file in files]
    assert right[:30].mean() > 0.6  # sorted by name, so of both weeks
    assert right.mean() > 0.6
    recorded = [entry.accuracy for entry in learner.taught]
    assert all(accuracy is not None and accuracy > 60 for accuracy in recorded)


@pytest.mark.repeats
def test_what_programs_are_told(model: Path, photos: Path) -> None:
    start, *epochs, done = events(model, photos / "week2")
    assert start.pop("estimated_seconds") > 0
    assert start == {
        "event": "start",
        "classes": list(WEEK2),
        "again": [],
        "images": 30,
        "held_out": 6,
        "epochs": 3,
        "image_size": 8,
        "device": "cpu",
    }
    assert [event["epoch"] for event in epochs] == [1, 2, 3]
    for event in epochs:
        assert event.keys() == {"event", "epoch", "epochs", "loss", "held_out_accuracy", "seconds_left"}
        assert 0 <= event["held_out_accuracy"] <= 100
        assert event["loss"] > 0
    assert epochs[0]["seconds_left"] > 0
    assert epochs[-1]["seconds_left"] == 0
    assert done.keys() == {"event", "generation", "digest", "accuracy", "seconds"}
    assert (done["generation"], done["digest"]) == (2, ModelFolder(model).digest)
    first, second = ContinualClassifier.load(model).taught
    assert done["accuracy"] == {"held_out": second.accuracy, "previous": first.accuracy}
    json.dumps([start, *epochs, done], allow_nan=False)


@pytest.mark.repeats
def test_programs_are_told_how_far_a_long_end_is(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GCAB-Fast distills after the last epoch: that is announced, counted and followed."""
    short = {"options.distillation_steps": 400, "options.views": 1}
    estimated: list[float] = []
    estimate_seconds = GcabFast.estimate_seconds

    def watched(self: GcabFast, images: torch.Tensor) -> tuple[float, float]:
        estimated.append(sum(estimate_seconds(self, images)))
        return 1000.0, 3000.0

    monkeypatch.setattr(GcabFast, "estimate_seconds", watched)
    for week in ("week1", "week2"):
        seen = events(tmp_path / "m", photos / week, method="gcab-fast", settings={**TINY_GCAB, **short})
        start, *work, _ = seen
        epochs = [event for event in work if event["event"] == "epoch"]
        ends = [event for event in work if event["event"] == "ending"]
        if week == "week1":  # one task is one pass anyway
            assert (ends, estimated, epochs[-1]["seconds_left"]) == ([], [], 0)
            assert 0 < start["estimated_seconds"] < 4000
    assert 4000 < start["estimated_seconds"] < 8000  # each once
    assert all(4000 <= event["seconds_left"] < 8000 for event in epochs)
    assert [event["event"] for event in work] == ["epoch"] * 3 + ["ending"] * len(ends)
    shares = [event["share"] for event in ends]
    assert shares == sorted(set(shares))
    assert shares[-1] == 1
    assert 30 <= len(shares) <= 50  # of 400 steps: few enough for a server that keeps 200 events
    assert all(0 <= event["seconds_left"] < 4000 for event in ends)
    assert ends[-1]["seconds_left"] == 0
    assert len(estimated) == 2  # for the estimate, and for the shares
    assert all(0 < seconds < 1000 for seconds in estimated)
    json.dumps(seen, allow_nan=False)


def test_the_estimate_changes_nothing(
    model: Path, taught_twice: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lesson, "estimate", lambda _: 1.0)
    learn(model, photos / "week2")
    assert weights(model) == weights(taught_twice)


@pytest.mark.repeats
@pytest.mark.parametrize("method", ["gcab", "er"])
def test_the_accuracy_of_an_epoch_is_what_would_be_recorded_after_it(method: str, photos: Path, tmp_path: Path) -> None:
    learn(tmp_path / "m", photos / "week1", method=method, epochs=1)
    for epochs in (2, 4):
        *_, done = seen = events(tmp_path / "m", photos / "week2", epochs=epochs, settings=tiny(method))
        *_, last = [event["held_out_accuracy"] for event in seen if event["event"] == "epoch"]
        assert last == done["accuracy"]["held_out"]
        ModelFolder(tmp_path / "m").undo()
    seen = events(tmp_path / "m", photos / "week2", epochs=4, patience=4, settings=tiny(method))
    best = max(event["held_out_accuracy"] for event in seen if event["event"] == "epoch")
    assert seen[-1]["accuracy"]["held_out"] == best


def test_long_lessons_look_at_the_held_out_photos_now_and_then(
    model: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gcab.classifier.lesson.LOOKS", 2)
    accuracies_of(monkeypatch, [50, 60, 60, 70])
    seen = events(model, photos / "week2", epochs=9, patience=6)
    told = [event["held_out_accuracy"] for event in seen if event["event"] == "epoch"]
    assert told == [None, None, None, 50, None, None, None, 60, 60]


def test_it_stops_when_held_out_photos_are_told_apart_no_better(
    model: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies_of(monkeypatch, [50, 60, 60, 40, 60, 70, 80])
    seen = events(model, photos / "week2", epochs=30, patience=3)
    assert [event["held_out_accuracy"] for event in seen if event["event"] == "epoch"] == [50, 60, 60, 40, 60]
    assert ContinualClassifier.load(model).taught[1].epochs == 5


def test_the_best_epoch_is_kept_and_of_equals_the_last(
    model: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[dict[str, torch.Tensor]] = []
    ended: list[dict[str, torch.Tensor]] = []
    intact = Lesson.after_epoch

    def after_epoch(self: Lesson, epoch: Any) -> bool:
        states.append({name: value.clone() for name, value in self.method.state_dict().items()})
        return intact(self, epoch)

    def finish(method: Method, *_: Any) -> None:
        ended.append({name: value.clone() for name, value in method.state_dict().items()})

    accuracies_of(monkeypatch, [50, 60, 60, 40])
    monkeypatch.setattr(Lesson, "after_epoch", after_epoch)
    monkeypatch.setattr("gcab.training.task.finish", finish)
    learn(model, photos / "week2", epochs=4, patience=3)
    [kept] = ended
    same = [all(torch.equal(state[name], kept[name]) for name in kept) for state in states]
    assert same == [False, False, True, False]


def test_without_patience_the_last_epoch_is_kept(
    model: Path, taught_twice: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies_of(monkeypatch, [90, 10, 10])
    learn(model, photos / "week2", held_out=0.2)
    assert weights(model) == weights(taught_twice)


LONG: dict[str, Any] = {"epochs": 8, "patience": 4, "checkpoint_seconds": 0.0}


@pytest.fixture(scope="module")
def uninterrupted(taught_once: Path, photos: Path) -> tuple[Path, list[Event]]:
    """A model that was taught a long lesson at once, and what was told of it."""
    alone = shutil.copytree(taught_once, taught_once.with_name("alone.gcab"))
    return alone, events(alone, photos / "week2", **LONG)


@pytest.mark.repeats
@pytest.mark.parametrize("stops", [[0], [2], [1, 3, 4]])
def test_a_lesson_that_is_interrupted_ends_as_one_that_is_not(
    stops: list[int], model: Path, photos: Path, uninterrupted: tuple[Path, list[Event]]
) -> None:
    alone, told = uninterrupted
    for stop in stops:
        with pytest.raises(StopError):
            learn(model, photos / "week2", progress=stop_after(stop), **LONG)
        assert ContinualClassifier.load(model, device="cpu").classes == [*WEEK1]
        assert (model / "work").is_dir()
    seen = events(model, photos / "week2", **LONG)
    assert notes(seen) == ([f"continuing after epoch {stops[-1]}"] if stops[-1] else [])
    last = [event for event in seen if event["event"] == "epoch"]
    same = ("epoch", "loss", "held_out_accuracy")
    expected = [[event[key] for key in same] for event in told if event["event"] == "epoch"][stops[-1] :]
    assert [[event[key] for key in same] for event in last] == expected
    assert weights(model) == weights(alone)
    assert not (model / "work").exists()
    ours, theirs = (json.loads((ModelFolder(path).current() / "model.json").read_text()) for path in (model, alone))
    for document in (ours, theirs):
        for entry in document["taught"]:
            del entry["seconds"], entry["when"]
    assert ours == theirs


def test_a_first_lesson_is_continued_too(photos: Path, taught_once: Path, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        learn(tmp_path / "m", photos / "week1", progress=stop_after(1), checkpoint_seconds=0.0)
    with pytest.raises(GcabError, match=r"there is no model in .* yet: its first lesson has not ended"):
        ContinualClassifier.load(tmp_path / "m")
    assert notes(events(tmp_path / "m", photos / "week1")) == ["continuing after epoch 1"]
    assert weights(tmp_path / "m") == weights(taught_once)


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": 4}, "training.epochs is 4, was 3"),
        ({"seed": 2, "epochs": 4}, "seed is 2, was 1; training.epochs is 4, was 3"),
        ({"patience": 9}, "patience is 9, was 0"),
        ({"held_out": 0.4}, "held_out is 0.4, was 0.2"),
    ],
)
def test_an_interrupted_lesson_is_not_given_up_unasked(
    change: dict[str, Any], words: str, interrupted: Path, photos: Path
) -> None:
    with pytest.raises(GcabError) as refused:
        learn(interrupted, photos / "week2", **change)
    assert str(refused.value) == (
        f"{interrupted} has an interrupted lesson (bar, cross, ring; after epoch 1) and this is another ({words}): "
        "give the photos and options of that one to continue it, or --give-up to drop it."
    )
    assert notes(events(interrupted, photos / "week2")) == ["continuing after epoch 1"]


@pytest.mark.repeats
def test_it_is_given_up_if_that_is_asked_for(interrupted: Path, photos: Path) -> None:
    expected = ["an interrupted lesson of other photos or settings is given up: bar, cross, ring"]
    assert notes(events(interrupted, photos / "week2", epochs=4, give_up=True)) == expected
    assert not (interrupted / "work").exists()


def test_permission_to_give_up_does_not_give_up_the_same_lesson(interrupted: Path, photos: Path) -> None:
    assert notes(events(interrupted, photos / "week2", give_up=True)) == ["continuing after epoch 1"]


@pytest.mark.repeats
def test_a_lesson_without_an_epoch_behind_it_is_nothing_to_lose(model: Path, photos: Path) -> None:
    with pytest.raises(StopError):
        learn(model, photos / "week2", progress=stop_after(0))
    expected = ["an interrupted lesson of other photos or settings is given up: bar, cross, ring"]
    assert notes(events(model, photos / "week2", epochs=4)) == expected


@pytest.mark.repeats
def test_other_photos_do_not_give_it_up_either(interrupted: Path, photos: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(photos / "week2", tmp_path / "week2")
    Image.new("RGB", (8, 8)).save(changed / "ring" / "000.png")
    with pytest.raises(GcabError, match=r"and this is another \(other photos\): give the photos and options"):
        learn(interrupted, changed)
    assert len(notes(events(interrupted, changed, give_up=True))) == 1


def test_a_lesson_of_a_model_that_is_gone_is_said_to_be_one(taught: Path, tmp_path: Path) -> None:
    more = make_photos(tmp_path / "more", ("circle", "bar")).rename(tmp_path / "week3")
    for name in ("circle", "bar"):
        (more / name).rename(more / f"another {name}")
    with pytest.raises(StopError):
        learn(taught, more, progress=stop_after(1), checkpoint_seconds=0.0)
    ModelFolder(taught).undo()
    with pytest.raises(GcabError, match=r"and this is another \(the model has changed since\)"):
        learn(taught, more)


@pytest.mark.repeats
def test_work_that_came_to_its_end_is_removed_without_a_word(
    interrupted_once: Path, taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(interrupted_once / "work", taught / "work")  # as if killed between the rename and the cleaning up
    assert overview(taught)["interrupted"] is None
    more = make_photos(tmp_path / "more", ("circle", "bar"))
    (more / "circle").rename(more / "disc")
    (more / "bar").rename(more / "beam")
    monkeypatch.setattr("gcab.classifier.forecast.MUCH", 100.0)  # what the lesson costs earlier ones is no matter here
    assert notes(events(taught, more)) == []
    assert not (taught / "work").exists()


def test_undo_removes_work_that_came_to_its_end(model: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ModelFolder, "discard_work", lambda _: None)
        learn(model, photos / "week2")
    assert (model / "work").is_dir()
    assert ModelFolder(model).undo() == 1
    assert not (model / "work").exists()


def test_a_lesson_with_nothing_left_to_do_still_cleans_up(taught: Path, photos: Path) -> None:
    shutil.copytree(taught / "generation-0001", taught / ".generation-0000.gone")
    assert len(notes(events(taught, photos / "week2"))) == 1
    assert sorted(entry.name for entry in taught.iterdir()) == ["generation-0001", "generation-0002", "lock"]


@pytest.mark.repeats
@pytest.mark.parametrize("moment", [(ModelFolder, "discard_work"), (Teaching, "done")])
def test_killed_after_the_model_was_written_the_same_command_says_so(
    moment: tuple[type, str], model: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(*moment, stop)
        with pytest.raises(StopError):
            learn(model, photos / "week2")
    written = weights(model)
    seen: list[Event] = []
    result = learn(model, photos / "week2", progress=seen.append)
    assert notes(seen) == ["these photos are learned already, with these settings: nothing is left to do"]
    assert (result.generation, result.classes) == (2, WEEK2)
    assert seen[-1] == {
        "event": "done",
        "generation": 2,
        "digest": ModelFolder(model).digest,
        "accuracy": {
            "held_out": result.taught.accuracy,
            "previous": ContinualClassifier.load(model).taught[0].accuracy,
        },
        "seconds": result.taught.seconds,
    }
    assert weights(model) == written
    assert not (model / "work").exists()
    with pytest.raises(GcabError, match="these photos were learned in lesson 2"):
        learn(model, photos / "week2", epochs=4)


def test_a_model_that_another_process_made_meanwhile_is_not_overwritten(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intact = Photos.read

    def slow(*arguments: Any) -> Photos:
        monkeypatch.undo()
        learn(tmp_path / "m", photos / "week1")
        return intact(*arguments)

    monkeypatch.setattr(Photos, "read", slow)
    with pytest.raises(GcabError, match="was taught by another process meanwhile: give the command again"):
        learn(tmp_path / "m", photos / "week2")
    assert ContinualClassifier.load(tmp_path / "m").classes == [*WEEK1]


def test_a_damaged_checkpoint_costs_time_only(interrupted: Path, taught_twice: Path, photos: Path) -> None:
    for file in (interrupted / "work").iterdir():
        file.write_bytes(b"noise")
    assert ["damaged" in note for note in notes(events(interrupted, photos / "week2"))] == [True]
    assert weights(interrupted) == weights(taught_twice)


@pytest.mark.repeats
def test_unreadable_photos_are_listed_and_nothing_is_lost(model: Path, photos: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(photos / "week2", tmp_path / "week2")
    for index in range(7):
        (broken / "ring" / f"{index:03d}.png").write_bytes(b"noise" * (index > 0))
    before = weights(model)
    with pytest.raises(GcabError) as refused:
        learn(model, broken)
    sentence = str(refused.value)
    assert sentence.startswith("7 of 36 photos cannot be read, so nothing was learned (")
    assert "000.png is empty (0 bytes)" in sentence
    assert "004.png is not an image that can be read" in sentence
    assert "005.png" not in sentence
    assert sentence.endswith("; and 2 more): repair or remove them, or leave them out with --skip-unreadable.")
    assert weights(model) == before
    result = learn(model, broken, skip_unreadable=True)
    assert len(result.skipped) == 7
    assert (result.taught.images, result.taught.held_out) == (24, 5)


def test_a_class_without_a_readable_photo_is_refused(model: Path, photos: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(photos / "week2", tmp_path / "week2")
    for file in (broken / "ring").iterdir():
        file.write_bytes(b"noise")
    with pytest.raises(GcabError, match="no photo of the class 'ring' can be read"):
        learn(model, broken, skip_unreadable=True)
    for name in ("a", "b"):
        (tmp_path / "noise" / name).mkdir(parents=True)
        (tmp_path / "noise" / name / "1.png").write_bytes(b"noise")
    with pytest.raises(GcabError, match="not one of 2 photos can be read"):
        learn(tmp_path / "new", tmp_path / "noise")


def test_the_size_is_that_of_most_photos_that_can_be_read(photos: Path, tmp_path: Path) -> None:
    large = make_photos(tmp_path / "large", WEEK1, count=3, side=24)
    (large / "circle" / "000.png").write_bytes(b"noise")
    Image.new("RGB", (8, 8)).save(large / "circle" / "001.png")
    seen = events(tmp_path / "m", large, skip_unreadable=True, epochs=1)
    assert ContinualClassifier.load(tmp_path / "m").image_size == 32
    assert "most photos are 24 pixels wide: the model will look at 32 x 32 (--size N: at more)" in notes(seen)
    learn(tmp_path / "n", photos / "week1", size=16, epochs=1)
    assert ContinualClassifier.load(tmp_path / "n").image_size == 16


def test_few_photos_are_all_learned_from(tmp_path: Path) -> None:
    make_photos(tmp_path / "few", ("circle",), count=4)
    make_photos(tmp_path / "few", ("square",), count=5)
    assert notes(events(tmp_path / "m", tmp_path / "few")) == ["too few photos to hold one out: circle"]
    assert ContinualClassifier.load(tmp_path / "m").taught[0].held_out == 1
    (tmp_path / "few" / "square" / "004.png").unlink()
    seen = events(tmp_path / "n", tmp_path / "few")
    assert notes(seen) == ["no class has five photos: none is held out, so the accuracy stays unknown"]
    assert {event["held_out_accuracy"] for event in seen if event["event"] == "epoch"} == {None}
    learner = ContinualClassifier.load(tmp_path / "n")
    assert (learner.taught[0].accuracy, learner.taught[0].held_out) == (None, 0)
    assert notes(events(tmp_path / "o", tmp_path / "few", held_out=0.0)) == []


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({"size": 16}, "the images of this model have 8 x 8 pixels since its first task"),
        ({"encoder": "small", "settings": {}}, "encoder.blocks is 1 since this model's first task and cannot become 4"),
        ({"encoder": "large"}, "unknown encoder 'large'"),
        ({"recipe": "fotos"}, "unknown recipe 'fotos': did you mean 'photos'"),
        ({"method": "er"}, "this model learns with gcab: it cannot change to er"),
        ({"settings": {"encoder.width": "32"}}, "encoder.width is 16 since this model's first task"),
        ({"settings": {"options.statistics": "no"}}, "options.statistics is True since"),
        ({"settings": {"encoder.patch": "4"}}, "encoder.patch follows from image_size"),
        ({"settings": {"training.speed": "4"}}, "unknown setting 'training.speed'"),
        ({"held_out": 0.9}, "the share of images held out is 0.9: give a number from 0 to 0.5"),
        ({"patience": -1}, "the patience is -1"),
        ({"epochs": 0}, "training.epochs is 0"),
    ],
)
def test_impossible_wishes_change_nothing(wishes: dict[str, Any], expected: str, model: Path, photos: Path) -> None:
    before = weights(model)
    with pytest.raises(GcabError, match=expected):
        learn(model, photos / "week2", **wishes)
    assert weights(model) == before
    assert not (model / "work").exists()


@pytest.mark.repeats
def test_encoders_are_called_by_their_names(photos: Path, tmp_path: Path) -> None:
    teach(tmp_path / "m", photos / "week1", epochs=1, device="cpu")
    teach(tmp_path / "m", photos / "week2", epochs=1, device="cpu", encoder="tiny")
    more = make_photos(tmp_path / "more", WEEK1)
    for name in WEEK1:
        (more / name).rename(more / f"another {name}")
    with pytest.raises(GcabError, match=r"this model's encoder is tiny since .*: it cannot change to small\."):
        teach(tmp_path / "m", more, epochs=1, device="cpu", encoder="small")


def test_settings_stay_until_they_are_changed(model: Path, photos: Path) -> None:
    teach(model, photos / "week2", device="cpu", recipe="photos", epochs=1, seed=5)
    config = ContinualClassifier.load(model).config
    assert (config.augment.crop, config.augment.flip, config.augment.randaugment) == ("pad", True, True)
    assert (config.training.epochs, config.training.batch_size, config.training.lr) == (1, 128, 1.25e-4)
    assert (config.seed, config.encoder.width) == (5, 16)


def test_larger_photos_are_cropped_by_the_recipe() -> None:
    large = ContinualClassifier(recipe="photos", image_size=64)
    assert large.config.augment.crop == "resized"
    small = ContinualClassifier(recipe="photos", image_size=32, settings={"augment.crop": "none"})
    assert small.config.augment.crop == "none"


def test_what_was_learned_before_is_refused(model: Path, photos: Path) -> None:
    with pytest.raises(GcabError, match="these photos were learned in lesson 1 and would count twice: give others"):
        learn(model, photos / "week1", held_out=0.4)
    with pytest.raises(GcabError, match=r"there is no folder '.*week9': name one with a subfolder of photos"):
        learn(model, photos / "week9")
    a_photo = next(path for path in (photos / "week1").rglob("*") if path.is_file())
    with pytest.raises(GcabError, match=r"is no folder: name one with a subfolder of photos"):
        learn(model, a_photo)
    assert ModelFolder(model).generation == 1


def test_a_loss_that_is_no_number_keeps_the_model(model: Path, photos: Path) -> None:
    before = weights(model)
    with pytest.raises(GcabError, match=r"the loss became .*: the model is as it was before; try a lower training.lr"):
        learn(model, photos / "week2", settings={"training.lr": "1e30", "training.warmup_epochs": "0"})
    assert weights(model) == before
    assert not ModelFolder(model).work.exists()  # or the lower one would be refused as another lesson
    learner = ContinualClassifier(
        epochs=3, device="cpu", settings={**TINY_GCAB, "training.lr": 1e30, "training.warmup_epochs": 0}
    )
    with pytest.raises(GcabError, match=r"step .: the model is as it was before; try a lower training.lr"):
        learner.learn(photos / "week1")
    assert learner.classes == []


@pytest.mark.repeats
def test_a_model_saved_from_python_is_taught_from_a_folder(photos: Path, tmp_path: Path) -> None:
    ContinualClassifier(epochs=1, device="cpu", settings=TINY_GCAB).learn(photos / "week1").save(tmp_path / "m")
    assert learn(tmp_path / "m", photos / "week2").generation == 1
    assert len(ContinualClassifier.load(tmp_path / "m").classes) == 5
    assert ModelFolder(tmp_path / "m").undo() == 0
    assert ContinualClassifier.load(tmp_path / "m").classes == [*WEEK1]


def test_the_package_offers_it() -> None:
    assert gcab.teach is teach
    assert "from gcab import teach" in (gcab.classifier.teaching.__doc__ or "")
