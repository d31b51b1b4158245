"""Undo over several steps, and what a model has been through: whole at any moment."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.commands import refusal, succeeds
from helpers.eyes import eye, many, pictures
from helpers.interruptions import KilledError, interrupt

from gcab import GcabError, ModelFolder
from gcab.runs.model import load_model, save_model


def named(name: str) -> Callable[[Path], None]:
    return lambda folder: save_model(folder, {"name": name, "tasks": [[name]]}, {"weight": torch.ones(3)})


def kept(path: Path, changes: str, keep: int | None = None) -> ModelFolder:
    folder = ModelFolder(path)
    if keep is not None:
        folder.set_keep(keep)
    for name in changes:
        folder.write(named(name))
    return folder


def test_as_many_steps_as_are_kept(tmp_path: Path) -> None:
    folder = kept(tmp_path / "m", "abcdef", keep=3)
    assert list(folder.generations()) == [3, 4, 5, 6]
    for steps in (4, 0, -1):
        with pytest.raises(GcabError, match=r"steps cannot be undone in .*: what is kept goes 3 steps back"):
            folder.undo(steps)
    assert folder.undo(2) == 4
    assert folder.description()["name"] == "d"
    assert folder.undo() == 3
    with pytest.raises(GcabError, match="nothing to undo"):
        folder.undo()
    folder.set_keep(0)
    folder.write(named("x"))
    assert list(folder.generations()) == [4]
    with pytest.raises(GcabError, match="-1 steps cannot be kept"):
        folder.set_keep(-1)


def test_fewer_are_kept_at_once(tmp_path: Path) -> None:
    folder = kept(tmp_path / "m", "abcde", keep=9)
    folder.set_keep(1)
    assert list(folder.generations()) == [4, 5]
    (folder.path / "keep").write_text("many")
    assert folder.keep == 1


def test_a_damaged_step_on_the_way_is_gone_and_one_that_may_be_intact_stops(tmp_path: Path) -> None:
    folder = kept(tmp_path / "m", "abcd", keep=3)
    (folder.path / "generation-0003" / "weights.safetensors").write_bytes(b"noise")
    assert folder.undo(2) == 2
    folder = kept(tmp_path / "n", "abcd", keep=3)
    described = folder.path / "generation-0003" / "model.json"
    described.write_text(described.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(GcabError, match="nothing was undone, as generation 3 may be intact"):
        folder.undo(2)
    assert folder.generation == 4
    (folder.path / "generation-0001" / "model.json").write_text("{")
    with pytest.raises(GcabError, match="generation-0001 is damaged"):
        folder.undo(3)


@pytest.mark.parametrize("act", ["undo", "keep"])
def test_killed_at_any_moment_a_whole_model_is_there(act: str, tmp_path: Path) -> None:
    moment, failed = 0, True
    while failed:
        moment += 1
        folder = kept(tmp_path / f"m{moment}", "abcd", keep=3)
        with pytest.MonkeyPatch.context() as patch:
            came = interrupt(patch, moment, KilledError())
            with contextlib.suppress(KilledError):
                folder.undo(3) if act == "undo" else folder.set_keep(1)
            failed = came()
        again = ModelFolder(folder.path)
        assert again.description()["name"] in ("abcd" if act == "undo" else "d")
        assert all(load_model(place) for place in again.generations().values())
        if (again.generation or 0) > 1 and act == "undo":
            again.undo((again.generation or 0) - 1)
            assert again.description()["name"] == "a"
        again.set_keep(2)
        assert [entry.name for entry in folder.path.iterdir() if entry.name.startswith(".")] == []
    assert moment >= 4


def test_forgetting_says_who_still_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ModelFolder(tmp_path / "m")
    folder.set_keep(3)
    model = eye(forgettable=True).learn(*many(0, 1))
    for label in (2, 3):
        folder.write(model.learn(*many(label)).save)
    said = succeeds(capsys, "forget", folder.path, "b")
    assert "generations 1 to 2 still know it and are kept for undo, until more changes follow" in said
    said = succeeds(capsys, "forget", folder.path, "c", "--keep", "0")
    assert "kept for undo" not in said
    assert list(folder.generations()) == [4]
    history = succeeds(capsys, "history", folder.path)
    assert "nothing is kept for undo" in history
    assert [line.split()[2] for line in history.splitlines() if "a class of lesson" in line] == ["forgot", "forgot"]


def test_every_lesson_and_change_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ModelFolder(tmp_path / "m")
    model = eye().learn(*many(0, 1, count=10), held_out=0.2).rename("a", "ash").learn(*many(1, 2), held_out=0.2)
    model.forget("c", pictures(2))
    folder.write(model.save)
    assert model.known.changes[-1].text == "a class of lesson 2"
    events = json.loads(succeeds(capsys, "history", folder.path, "--json"))["history"]
    assert [(event["what"], event["classes"]) for event in events] == [
        ("learned", 2),
        ("renamed", 2),
        ("learned", 2),
        ("forgot", 2),
    ]
    assert (events[0]["photos"], events[0]["held_out"], events[0]["names"]) == (16, 4, ["ash", "b"])
    assert events[2]["again"] == ["b"]
    assert "c" not in [name for event in events for name in event.get("names", [])]
    text = succeeds(capsys, "history", folder.path)
    assert "lesson 1" in text
    assert "a is called ash" in text
    assert "nothing is kept for undo" in text
    assert "there is no model in" in refusal(capsys, "history", tmp_path / "none")


def test_undo_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path / "m", "abcd", keep=3)
    assert "'0' is not a whole number above 0" in refusal(capsys, "undo", folder.path, "--steps", "0")
    assert "4 steps cannot be undone" in refusal(capsys, "undo", folder.path, "--steps", "4")
    said = succeeds(capsys, "undo", folder.path, "--steps", "3")
    assert said == f"{folder.path}  back to generation 1: 1 class (a)\n"
