"""The verbs learn, info, undo and audit, as a person or a program sees them."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import WEEK1, WEEK2, make_photos
from helpers.settings import TINY, TINY_GCAB, set_flags

from gcab.cli.lesson_display import amount, duration
from gcab.cli.main import main
from gcab.methods.opinions import Opinionated

SET = set_flags(TINY_GCAB)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    make_photos(root / "week1", WEEK1)
    make_photos(root / "week2", WEEK2, seed=1)
    for week in ("week1", "week2"):
        arguments = ["learn", root / "shapes.gcab", root / week, "--epochs", "2", "--device", "cpu", *SET]
        assert main([*map(str, arguments), "--progress", "none"]) == 0
    return root


@pytest.fixture
def model(world: Path, tmp_path: Path) -> Path:
    return shutil.copytree(world / "shapes.gcab", tmp_path / "shapes.gcab")


def said(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> str:
    assert main([*map(str, arguments)]) == code
    captured = capsys.readouterr()
    assert (captured.err == "") == (code == 0)
    return " ".join((captured.err if code else captured.out).split())


def test_a_lesson_in_plain_lines(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learn = ("learn", tmp_path / "m.gcab", world / "week1", "--epochs", 2, "--device", "cpu", *SET)
    text = said(capsys, *learn)
    assert "m.gcab learning 2 classes from 20 photos (4 held out), 8 x 8 pixels, on cpu: about " in text
    assert re.search(r": about \d+ s or less for 2 epochs", text)
    assert "m.gcab generation 1: learned circle, square in 2 epochs (" in text
    assert "% of 4 held-out photos right" in text
    again = said(capsys, *learn)
    assert "m.gcab these photos are learned already, with these settings: nothing is left to do" in again
    assert "m.gcab generation 1: learned circle, square in 2 epochs (" in again
    assert "these photos were learned in lesson 1" in said(capsys, *learn, "--seed", 2, code=2)
    assert "these photos were learned in lesson 1" in said(capsys, *learn, "--seed", 2, "--dry-run", code=2)


@pytest.mark.parametrize(
    ("options", "optimistic"),
    [
        ((), False),  # the eye alone decides
        (("--set", "options.trial=false"), True),
        (("--method", "finetune"), True),
        (("--method", "finetune", "--patience", "0"), False),
        (("--method", "eye"), False),
    ],
)
def test_held_out_photos_that_chose_the_epoch_of_what_answers_are_called_optimistic(
    options: tuple[str, ...], optimistic: bool, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = () if "--method" in options else SET
    text = said(capsys, "learn", tmp_path / "m", world / "week1", "--epochs", 1, "--device", "cpu", *own, *options)
    assert ("of 4 held-out photos right (optimistic: they chose the epoch)" in text) == optimistic
    assert ("the eye alone decides" in text) == (options == ())


def test_held_out_photos_chose_nothing_where_the_network_did_not_learn(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Opinionated, "answers_by_training", True)
    text = said(capsys, "learn", model, make_photos(tmp_path / "more", WEEK1, seed=2), "--device", "cpu")
    assert "held-out photos right" in text
    assert "optimistic" not in text


def test_a_refused_first_lesson_leaves_nothing(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(world / "week1" / "circle", tmp_path / "photos" / "circle")
    one = ("learn", tmp_path / "m", tmp_path / "photos", "--method", "finetune")
    assert "only one class was given" in said(capsys, *one, code=2)
    (tmp_path / "photos" / "noise").mkdir()
    (tmp_path / "photos" / "noise" / "1.png").write_bytes(b"noise")
    assert "cannot be read, so nothing" in said(capsys, "learn", tmp_path / "m", tmp_path / "photos", code=2)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["photos"]


def test_a_size_of_nothing_is_not_the_usual_one(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = said(capsys, "learn", tmp_path / "m", world / "week1", "--size", 0, code=2)
    assert "image_size is 0: give a multiple of 8 from 8 to 384" in refused


@pytest.mark.repeats
def test_a_lesson_for_programs(model: Path, world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["undo", str(model)])
    capsys.readouterr()
    assert main(["learn", str(model), str(world / "week2"), "--device", "cpu", "--progress", "json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["note", "start", "epoch", "epoch", "done"]
    assert "at most 2 epochs, as an earlier lesson was told" in events[0]["text"]


@pytest.mark.repeats
def test_a_lesson_in_silence(model: Path, world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["undo", str(model)])
    capsys.readouterr()
    assert said(capsys, "learn", model, world / "week2", "--device", "cpu", "--progress", "none") == ""


def test_progress_lines_where_there_is_no_terminal(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gcab.terminal.LINE_SECONDS", 0.0)
    text = said(capsys, "learn", tmp_path / "m.gcab", world / "week1", "--epochs", 2, "--device", "cpu", *SET)
    assert "m.gcab epoch 2/2 loss " in text
    assert "s left" in text


def test_the_distillation_after_a_lesson_is_shown(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gcab.terminal.LINE_SECONDS", 0.0)
    few = ("--set", "options.distillation_steps=20", "--set", "options.views=1", "--epochs", 1, "--device", "cpu")
    said(capsys, "learn", tmp_path / "m.gcab", world / "week1", "--method", "gcab-fast", *few, *SET)
    text = said(capsys, "learn", tmp_path / "m.gcab", world / "week2")
    assert re.search(r"m\.gcab epoch 1/1 loss .* m\.gcab finishing: 100 % 1 s left m\.gcab generation 2", text)


def test_a_setting_without_a_value(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "learn", tmp_path / "m", world / "week1", "--set", "training.lr", code=2)
    assert text == "gcab: --set needs KEY=VALUE, such as training.lr=0.0005, not 'training.lr'."
    assert not (tmp_path / "m").exists()


def test_info_for_people(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = said(capsys, "info", model)
    assert "shapes.gcab gcab, generation 2, generation 1 kept for undo, written by gcab" in text
    assert "5 classes in 2 tasks; images 8 x 8 pixels; encoder of its own (width 16, 1 blocks, 4 heads)" in text
    assert "bar, cross, ring" in text
    assert " 30 6 " in text
    assert "capacity left: " in text
    assert "calibrated on 50 photos held or left out; calibration error: " in text
    assert "the whole folder " in text


def test_info_for_programs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(said(capsys, "info", model, "--json"))
    assert (facts["generation"], facts["generations"], facts["can_undo"]) == (2, [1, 2], True)
    assert (facts["method"], facts["image_size"], facts["classes"]) == ("gcab", 8, 5)
    assert facts["encoder"] == {"name": None, "width": 16, "blocks": 1, "heads": 4}
    first, second = facts["tasks"]
    assert (first["index"], first["names"], second["names"]) == (1, [*WEEK1], [*WEEK2])
    assert (second["images"], second["held_out"], second["epochs"]) == (30, 6, 2)
    assert all(0 <= share <= 1 for share in facts["capacity_left"].values())
    assert facts["capacity_left"].keys() == {"input", "hidden"}
    current = sum(file.stat().st_size for file in (model / "generation-0002").iterdir())
    assert facts["bytes"]["model"] == current < facts["bytes"]["folder"]
    assert facts["interrupted"] is None


def interrupt_lesson(model: Path, world: Path) -> None:
    """Take the last lesson back and begin it anew."""
    main(["undo", str(model)])

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gcab.classifier.lesson.Lesson.run", stop)
        assert main(["learn", str(model), str(world / "week2"), "--device", "cpu"]) == 130


def test_info_tells_of_an_interrupted_lesson(model: Path, world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupt_lesson(model, world)
    capsys.readouterr()
    text = said(capsys, "info", model)
    assert text.endswith("a lesson is under way, or waits to be continued: bar, cross, ring")
    for file in (model / "work").iterdir():
        file.write_text("noise")
    assert "waits" not in said(capsys, "info", model)


def test_undo(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "undo", model).endswith("back to generation 1: 2 classes (circle, square)")
    assert "there is nothing to undo" in said(capsys, "undo", model, code=2)
    assert "there is no model in" in said(capsys, "undo", model / "nowhere", code=2)


@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_model_says_how_to_go_back(lost: bool, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if lost:
        (model / "generation-0002" / "model.json").unlink()
    else:
        (model / "generation-0002" / "weights.safetensors").write_bytes(b"noise")
    for verb in ("info", "audit", "report"):
        assert said(capsys, verb, model, code=2).endswith(f"'gcab undo {model}' goes back to generation 1.")
    said(capsys, "undo", model)
    assert "2 classes in 1 task;" in said(capsys, "info", model)


def test_audit_for_people(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # where no name may be broken: it could not be searched for
    text = said(capsys, "audit", model)
    assert "network.heads.1.linear.weight classifier of the classes of task 2" in text
    assert "5 x 4 x 16 float32 statistics.means statistics: the mean feature of each class" in text
    assert text.endswith("No image is among them.")
    assert "not of this model" not in text
    (model / "notes.txt").write_text("none of these")
    assert said(capsys, "audit", model).endswith(
        "not of this model: notes.txt Not looked into: notes.txt No image is among the rest."
    )


def test_an_audit_finds_files_that_look_like_images(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "photos").mkdir()
    (model / "photos" / "cat.JPG").write_bytes(b"meow")
    (model / "dog").write_bytes(b"\xff\xd8\xff woof")
    text = said(capsys, "audit", model)
    assert text.endswith("not of this model: dog, photos/cat.JPG Files that look like images: dog, photos/cat.JPG")


def test_an_audit_sums_up_what_is_beside_the_current_model(
    model: Path, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "audit", model)
    assert re.search(r"generation-0001/weights.safetensors: [\d.]+ [kM]B, kept for undo: \d+ tensors, no images", text)
    interrupt_lesson(model, world)
    capsys.readouterr()
    text = said(capsys, "audit", model)
    assert re.search(
        r"work/checkpoint-000001.safetensors: .*, of a lesson or distillation not yet ended: \d+ tensors, no images",
        text,
    )
    assert text.endswith("No image is among them.")
    (model / "work" / "checkpoint-000001.safetensors").write_bytes(b"noise")
    assert said(capsys, "audit", model).endswith(
        "Not looked into: work/checkpoint-000001.safetensors No image is among the rest."
    )


def test_audit_for_programs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "audit", model, "--json"))
    assert found["images"] == 0
    assert found["bytes"] == sum(tensor["bytes"] for tensor in found["tensors"])
    weights = model / "generation-0002" / "weights.safetensors"
    assert 0 < weights.stat().st_size - found["bytes"] < 20_000  # the names and shapes
    assert found["strangers"] == {}
    assert "generation-0001/model.json" in found["files"]


def test_an_audit_finds_stored_images(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wishes = ("--method", "er", "--epochs", 1, "--device", "cpu", *set_flags({**TINY, "options.buffer": 50}))
    told = "the method er keeps photos in the model (20, 0.01 MB): 'gcab audit' lists them"
    assert told in said(capsys, "learn", tmp_path / "m", world / "week1", *wishes)
    assert told in said(capsys, "info", tmp_path / "m")
    text = said(capsys, "audit", tmp_path / "m")
    assert text.endswith("20 stored images are among them.")
    assert "STORED TRAINING IMAGES" in text
    assert "50 x 3 x 8 x 8 uint8" in text
    said(capsys, "learn", tmp_path / "m", world / "week2")
    text = said(capsys, "audit", tmp_path / "m")
    assert re.search(r"kept for undo: \d+ tensors, 20 images", text)
    assert text.endswith("70 stored images are among them.")


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, "1 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (7500, "2 h 5 min")]
)
def test_times_are_said_as_people_do(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(("count", "expected"), [(999, "999 bytes"), (1500, "1.5 kB"), (2_340_000, "2.3 MB")])
def test_sizes_are_said_as_people_do(count: int, expected: str) -> None:
    assert amount(count) == expected
