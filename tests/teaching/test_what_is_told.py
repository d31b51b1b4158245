"""What a person is told before a lesson begins: how many photos are read, and whose number of epochs holds."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refusal, succeeds
from helpers.photos import WEEK1, WEEK2, make_photos
from helpers.settings import TINY_GCAB
from rich.console import Console

from gcab.classifier import teaching
from gcab.classifier.teaching import teach
from gcab.cli.lesson_display import LessonDisplay
from gcab.cli.main import main

INHERITED = "at most 1 epoch, as an earlier lesson was told: --epochs changes that"


def test_a_model_of_one_class_is_told_to_know_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(WEEK1):
        photos = make_photos(tmp_path / name, [name])
        assert main(["learn", str(tmp_path / "m"), str(photos), "--method", "eye", "--device", "cpu"]) == 0
        assert (f"{name} is the only class so far" in capsys.readouterr().out) == (number == 0)


def test_photos_in_two_classes_at_once_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = make_photos(tmp_path / "p", WEEK1)
    one, other = (sorted(folder.iterdir())[-1] for folder in sorted(photos.iterdir()))
    shutil.copy(one, other)
    sentence = f"a photo is in two classes at once ({one} and {other}): keep it in one"
    arguments = ["learn", str(tmp_path / "m"), str(photos), "--method", "eye", "--device", "cpu"]
    for more in (["--dry-run"], []):
        assert main([*arguments, *more]) == 0
        assert sentence in capsys.readouterr().out
    for number in range(2):
        shutil.copy(sorted(one.parent.iterdir())[number], sorted(other.parent.iterdir())[number])
    shutil.copy(one, one.with_name("again.png"))  # twice in its own class is no dispute
    assert main([*arguments, "--dry-run"]) == 0
    assert "3 photos are in two classes at once (" in capsys.readouterr().out


def test_weeks_are_no_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of lessons in place of one lesson's is refused by every command that takes photos in class folders."""
    model, photos = tmp_path / "m", tmp_path / "photos"
    for week, names in (("week1", WEEK1), ("week2", WEEK2)):
        make_photos(photos / week, names)
    told = (
        f"'{photos}' would give the classes week1, week2, but all photos lie in further folders (in week1: circle, "
        f"square): if those are the classes, give '{photos / 'week1'}' instead of '{photos}', and if not, move the "
        "photos out of them."
    )
    learn = ("learn", model, photos, "--method", "eye", "--device", "cpu")
    for command in (learn, (*learn, "--dry-run"), ("train", "folder/2", "--data", photos, "--device", "cpu")):
        assert refusal(capsys, *command) == told
    assert not model.exists()
    small = ("--set", "options.features=64", "--progress", "none")
    succeeds(capsys, "learn", model, photos / "week1", *learn[3:], *small)
    for verb in ("test", "distill"):
        assert refusal(capsys, verb, model, photos, "--device", "cpu") == told


def test_reading_and_inherited_epochs_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching, "READ", 8)
    told: list[list[dict[str, Any]]] = []
    for number, (names, epochs) in enumerate(((WEEK1, 1), (WEEK2, None))):
        told.append([])
        photos = make_photos(tmp_path / str(number), names, seed=number)
        wishes: dict[str, Any] = {"epochs": epochs, "settings": TINY_GCAB if epochs else None}
        teach(tmp_path / "m", photos, device="cpu", progress=told[-1].append, **wishes)
    reading = [event for event in told[0] if event["event"] == "reading"]
    assert reading == [{"event": "reading", "done": done, "photos": 24} for done in (8, 16, 24)]
    notes = [[event["text"] for event in events if event["event"] == "note"] for events in told]
    assert [INHERITED in lines for lines in notes] == [False, True]
    console = Console(record=True, force_terminal=False, width=100)
    with LessonDisplay(console, "m") as display:
        monkeypatch.setattr(display, "line_is_due", lambda: True)
        display(reading[0])
    assert "m  reading photos: 8 of 24" in console.export_text()
