"""Generations: whole at any moment, one writer, one step back."""

import contextlib
import errno
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.interruptions import KilledError, interrupt

import gcab
from gcab.classifier.model_folder import ModelFolder
from gcab.errors import GcabError
from gcab.runs.checkpoint import CheckpointStore
from gcab.runs.model import load_model, read_description, save_model
from gcab.version import VERSION


def saver(name: str) -> Callable[[Path], None]:
    return lambda folder: save_model(folder, {"name": name}, {"weight": torch.full((3,), float(len(name)))})


def taught(path: Path, *names: str) -> ModelFolder:
    folder = ModelFolder(path)
    for name in names:
        folder.write(saver(name))
    return folder


def name_of(folder: ModelFolder) -> Any:
    return folder.read(load_model)[0]["name"]


def entries(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_what_undo_takes_back_is_known_unless_it_cannot_be_read(tmp_path: Path) -> None:
    folder, found = ModelFolder(tmp_path / "m"), list[str | None]()
    for tasks in (1, 2, 2):
        folder.write(partial(save_model, description={"tasks": [[]] * tasks}, tensors={}))
        found.append(folder.undoes)
    (folder.path / "generation-0002" / "model.json").write_text("{")
    assert [*found, folder.undoes] == [None, "task", "distillation", "task"]


def test_every_lesson_is_a_generation_and_the_one_before_is_kept(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "birds.gcab")
    assert (folder.generation, folder.can_undo) == (None, False)
    assert folder.write(saver("one")) == 1
    assert (folder.generation, folder.can_undo) == (1, False)
    assert folder.write(saver("two")) == 2
    assert folder.can_undo
    assert folder.write(saver("three")) == 3
    assert list(folder.generations()) == [2, 3]
    assert folder.current() == tmp_path / "birds.gcab" / "generation-0003"
    assert name_of(folder) == "three"
    assert folder.description()["name"] == "three"
    assert entries(folder.path) == ["generation-0002", "generation-0003", "lock"]


def test_undo_goes_one_step_and_no_further(tmp_path: Path) -> None:
    folder = taught(tmp_path / "m", "one", "two", "three")
    assert folder.undo() == 2
    assert name_of(folder) == "two"
    with pytest.raises(GcabError, match=r"there is nothing to undo in .*m: no generation before this one is kept"):
        folder.undo()
    assert name_of(folder) == "two"
    assert folder.write(saver("other three")) == 3
    assert folder.undo() == 2


def test_nothing_to_undo_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match=r"there is no model in .*nowhere: check the path, or create one with"):
        ModelFolder(tmp_path / "nowhere").undo()
    assert entries(tmp_path) == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(GcabError, match=r"it has neither a model\.json nor a generation; check the path"):
        ModelFolder(tmp_path / "empty").current()


def test_a_damaged_generation_names_the_way_back(tmp_path: Path) -> None:
    folder = taught(tmp_path / "m", "one", "two")
    (folder.current() / "weights.safetensors").write_bytes(b"noise")
    with pytest.raises(GcabError) as refused:
        name_of(folder)
    sentence = str(refused.value)
    assert sentence.endswith(
        f"is damaged, restore it from a copy; 'gcab undo {folder.path}' goes back to generation 1."
    )
    assert "generation-0002" in sentence
    assert folder.undo() == 1
    assert name_of(folder) == "one"


def test_a_generation_without_its_files_is_damaged_too(tmp_path: Path) -> None:
    folder = taught(tmp_path / "m", "one", "two")
    (folder.current() / "model.json").unlink()
    with pytest.raises(GcabError, match=r"model\.json is missing; 'gcab undo .*' goes back to generation 1"):
        folder.description()


@pytest.mark.parametrize("reason", ["newer format", "permission"])
def test_a_generation_that_may_be_intact_is_not_undone(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = taught(tmp_path / "m", "one", "two")
    newest, read_text = folder.current() / "model.json", Path.read_text

    def refuse(path: Path) -> str:
        if path == newest:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_text(path)

    if reason == "permission":
        monkeypatch.setattr(Path, "read_text", refuse)
        expected = f"the model in {newest.parent} cannot be read (Permission denied): change its permissions."
    else:
        newest.write_text(newest.read_text().replace('"format": 1', '"format": 2'))
        expected = f"{newest.parent} has model format 2, this gcab {VERSION} reads format 1: "
        expected += "use the version that wrote it."
    for act in (folder.description, partial(folder.read, load_model)):
        assert refusal(act) == expected
    assert refusal(folder.undo) == f"nothing was undone, as the newest generation may be intact: {expected}"
    assert list(folder.generations()) == [1, 2]


def test_a_path_that_is_not_utf8_is_no_damage(tmp_path: Path) -> None:
    intact = taught(tmp_path / "m", "one", "two").path
    path = intact.rename(tmp_path / os.fsdecode(b"m\xff.gcab"))
    for act in (partial(ModelFolder, path), partial(load_model, path / "generation-0001"), partial(saver("a"), path)):
        assert "is not UTF-8, as those of models have to be: rename it." in refusal(act)
    assert name_of(ModelFolder(path.rename(intact))) == "two"


def test_a_folder_that_may_not_be_looked_into_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = taught(tmp_path / "m", "one").path

    def refuse(place: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(place))

    expected = f"the model in {path} cannot be read (Permission denied): change its permissions."
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", refuse)
        assert refusal(ModelFolder(path).generations) == expected
        patch.setattr(Path, "is_file", refuse)
        assert refusal(partial(ModelFolder, path)) == expected


def test_undo_never_gives_up_a_model_for_a_damaged_one(tmp_path: Path) -> None:
    folder = taught(tmp_path / "m", "one", "two")
    (folder.path / "generation-0001" / "model.json").write_text("{")
    with pytest.raises(GcabError, match="generation-0001 is damaged"):
        folder.undo()
    assert name_of(folder) == "two"


def test_a_single_damaged_generation_promises_no_way_back(tmp_path: Path) -> None:
    folder = taught(tmp_path / "m", "one")
    (folder.current() / "model.json").write_text("{")
    with pytest.raises(GcabError, match=r"is damaged: restore it from a copy\.$"):
        folder.description()


def test_a_reader_follows_a_model_that_moves_on(tmp_path: Path) -> None:
    folder = taught(tmp_path / "m", "one", "two")
    seen = []

    def read(place: Path) -> str:
        seen.append(place.name)
        if len(seen) == 1:
            taught(folder.path, "three", "four")  # which removes the generation that is being read
        return str(read_description(place)["name"])

    assert folder.read(read) == "four"
    assert seen == ["generation-0002", "generation-0004"]


def test_a_flat_model_is_generation_0(tmp_path: Path) -> None:
    saver("flat")(tmp_path / "m")
    folder = ModelFolder(tmp_path / "m")
    assert (folder.generation, folder.can_undo, folder.current()) == (0, False, tmp_path / "m")
    assert folder.write(saver("one")) == 1
    assert name_of(folder) == "one"
    assert folder.undo() == 0
    assert name_of(folder) == "flat"
    taught(tmp_path / "m", "one", "two")
    assert entries(tmp_path / "m") == ["generation-0001", "generation-0002", "lock"]


def test_an_interrupted_flat_save_is_found(tmp_path: Path) -> None:
    saver("flat")(tmp_path / "m")
    (tmp_path / "m").rename(tmp_path / ".m.old")
    assert name_of(ModelFolder(tmp_path / "m")) == "flat"


def test_the_model_of_a_run_is_read_but_not_taught(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    saver("run")(tmp_path / "model")
    assert name_of(ModelFolder(tmp_path)) == "run"
    for place in (tmp_path, tmp_path / "model"):
        with pytest.raises(GcabError, match="belongs to a run: copy it to a folder of its own"):
            ModelFolder(place).write(saver("one"))
    assert entries(tmp_path / "model") == ["model.json", "weights.safetensors"]


def test_folders_of_the_user_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "chapter.txt").write_text("years of work")
    with pytest.raises(GcabError, match="is not empty and holds no model: choose another folder"):
        ModelFolder(tmp_path).write(saver("one"))
    with pytest.raises(GcabError, match=r"chapter\.txt is a file: choose a folder"):
        ModelFolder(tmp_path / "chapter.txt").write(saver("one"))
    assert entries(tmp_path) == ["chapter.txt"]


def test_a_flat_save_does_not_replace_generations(tmp_path: Path) -> None:
    folder = taught(tmp_path / "m", "one")
    with pytest.raises(GcabError, match="keeps generations of a model: choose another folder"):
        saver("flat")(tmp_path / "m")
    assert name_of(folder) == "one"


def test_one_writer_at_a_time_and_readers_do_not_wait(tmp_path: Path) -> None:
    folder = taught(tmp_path / "m", "one", "two")
    code = (
        "import sys\nfrom gcab.runs.lock import RunLock\nfrom pathlib import Path\n"
        f"with RunLock(Path({str(folder.path)!r})):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        held = f"another gcab process .pid {other.pid}. is working in"
        with pytest.raises(GcabError, match=held):
            folder.write(saver("three"))
        with pytest.raises(GcabError, match=held):
            folder.undo()
        assert name_of(folder) == "two"
    finally:
        other.communicate()
    assert folder.undo() == 1


def test_a_lock_may_be_taken_inside_its_own(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "m")
    with folder.locked():
        folder.write(saver("one"))
        with pytest.raises(GcabError, match="another gcab process"):
            taught(tmp_path / "m", "two")
        folder.write(saver("two"))
    assert folder.undo() == 1


def refusal(act: Callable[[], object]) -> str:
    """The sentence with which something is refused; empty if it is not."""
    try:
        act()
    except GcabError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("act", ["write", "undo"])
def test_killed_at_any_moment_it_holds_the_old_or_the_new(act: str, tmp_path: Path) -> None:
    moment, failed = 0, True
    while failed:
        moment += 1
        folder = taught(tmp_path / f"m{moment}", "one", "two")
        with pytest.MonkeyPatch.context() as patch:
            came = interrupt(patch, moment, KilledError())
            with contextlib.suppress(KilledError):
                folder.write(saver("three")) if act == "write" else folder.undo()
            failed = came()
        after = {"write": "three", "undo": "one"}[act]
        assert name_of(folder) in ("two", after)
        again = ModelFolder(folder.path)  # as the next process sees it
        with again.locked():
            assert len(again.generations()) <= 2
            assert [name for name in entries(folder.path) if name.startswith(".")] == []
        again.write(saver("next"))
        assert name_of(again) == "next"
        assert len(again.generations()) == 2
        assert all(load_model(place) for place in again.generations().values())
        assert [name for name in entries(folder.path) if name.startswith(".")] == []
    assert moment >= 4


def test_killed_while_a_checkpoint_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = taught(tmp_path / "m", "one")
    CheckpointStore(folder.work).save({"lesson": "two"}, {"weight": torch.ones(3)})

    def half(place: Path, **_: object) -> None:
        next(place.glob("*.safetensors")).unlink()
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", half)
        with pytest.raises(KilledError):
            folder.discard_work()
    assert ModelFolder(folder.path).waiting() is None
    folder.write(saver("two"))
    assert entries(folder.path) == ["generation-0001", "generation-0002", "lock"]


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    moment, failed = 0, True
    while failed:
        moment += 1
        folder = taught(tmp_path / f"m{moment}", "one", "two")
        with pytest.MonkeyPatch.context() as patch:
            came = interrupt(patch, moment, OSError(errno.ENOSPC, "No space left on device"))
            said = refusal(functools.partial(folder.write, saver("three")))
            failed = came()
        assert ("disk full while saving" in said) == failed
        assert name_of(folder) in ("two", "three")
    assert moment >= 8


def test_the_package_offers_it() -> None:
    assert gcab.ModelFolder is ModelFolder
    assert gcab.GcabError is GcabError
