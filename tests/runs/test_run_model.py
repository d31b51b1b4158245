"""A model folder holds one whole model at any moment, and says what is wrong with it."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from gcab.errors import GcabError
from gcab.runs.model import load_model, save_model
from gcab.version import VERSION

OLD = {"weight": torch.arange(6.0).view(2, 3), "count": torch.tensor(3)}
NEW = {"weight": torch.ones(4, 4).T, "half": torch.ones(2, dtype=torch.bfloat16)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", {"name": "old"}, OLD)
    return tmp_path / "model"


def is_old(folder: Path) -> bool:
    description, tensors = load_model(folder)
    return description["name"] == "old" and torch.equal(tensors["weight"], OLD["weight"])


def test_what_is_saved_is_loaded(model: Path) -> None:
    description, tensors = load_model(model)
    assert description == {"format": 1, "gcab": VERSION, "weights": description["weights"], "name": "old"}
    assert tensors.keys() == OLD.keys()
    assert all(torch.equal(tensors[name], OLD[name]) and tensors[name].dtype == OLD[name].dtype for name in OLD)


def test_a_model_is_replaced_as_a_whole(model: Path) -> None:
    save_model(model, {"name": "new"}, NEW)
    description, tensors = load_model(model)
    assert description["name"] == "new"
    assert tensors.keys() == NEW.keys()
    assert torch.equal(tensors["weight"], torch.ones(4, 4))
    assert [path.name for path in model.parent.iterdir()] == ["model"]


def test_an_empty_folder_takes_a_model(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    save_model(tmp_path / "empty", {"name": "old"}, OLD)
    assert is_old(tmp_path / "empty")


def test_the_current_folder_takes_a_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model)
    save_model(Path(), {"name": "new"}, NEW)
    assert load_model(model)[0]["name"] == "new"


def test_a_link_stays_a_link(model: Path) -> None:
    link = model.with_name("latest")
    link.symlink_to(model)
    save_model(link, {"name": "new"}, NEW)
    assert link.is_symlink()
    assert load_model(model)[0]["name"] == "new"


def test_folders_of_the_user_are_left_alone(model: Path) -> None:
    for name in ("model.old", "model.new"):
        shutil.copytree(model, model.with_name(name))
    save_model(model, {"name": "new"}, NEW)
    assert is_old(model.with_name("model.old"))
    assert is_old(model.with_name("model.new"))
    other = model.with_name("thesis")
    other.mkdir()
    (other / "chapter.txt").write_text("years of work")
    with pytest.raises(GcabError, match="thesis is not empty and holds no model: choose another folder"):
        save_model(other, {}, NEW)
    with pytest.raises(GcabError, match=r"chapter\.txt is a file: choose a folder"):
        save_model(other / "chapter.txt", {}, NEW)
    with pytest.raises(GcabError, match="cannot save"):
        save_model(other / "chapter.txt" / "below", {}, NEW)
    assert (other / "chapter.txt").read_text() == "years of work"


@pytest.mark.parametrize("syncs", range(4))
def test_a_full_disk_leaves_the_old_model(syncs: int, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    intact, left = os.fsync, syncs

    def full(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        intact(descriptor)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GcabError, match="disk full"):
        save_model(model, {"name": "new"}, NEW)
    assert is_old(model)
    assert [path.name for path in model.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("moment", [1, 2])
def test_a_save_that_is_killed_between_its_steps(moment: int, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(BaseException):
        """Stands for a process that ends here."""

    intact, left = Path.rename, moment

    def rename(self: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError
        return intact(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(KilledError):
            save_model(model, {"name": "new"}, NEW)
    if moment == 1:
        assert is_old(model)
    save_model(model, {"name": "new"}, NEW)
    assert load_model(model)[0]["name"] == "new"
    assert [path.name for path in model.parent.iterdir()] == ["model"]


def test_a_reader_brings_back_what_a_killed_save_put_aside(model: Path) -> None:
    model.rename(model.with_name(".model.old"))
    assert is_old(model)


def test_a_failing_save_brings_it_back_too(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.rename(model.with_name(".model.old"))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GcabError, match="disk full"):
        save_model(model, {"name": "new"}, NEW)
    assert is_old(model)


def test_damage_is_named(model: Path) -> None:
    weights, description = model / "weights.safetensors", model / "model.json"
    intact, text = weights.read_bytes(), description.read_text()
    weights.write_bytes(intact[:-1])
    with pytest.raises(GcabError, match=r"weights\.safetensors does not match its model\.json"):
        load_model(model)
    weights.unlink()
    with pytest.raises(GcabError, match=r"there is no model in .*: weights\.safetensors is missing"):
        load_model(model)
    weights.write_bytes(intact)
    for damage in ("", "{", "[]", "{}", '{"format": 1}', text[: len(text) // 2]):
        description.write_text(damage)
        with pytest.raises(GcabError, match=r"is damaged(?: \([^)]+\))?: restore it from a copy"):
            load_model(model)
    description.write_text(json.dumps({**json.loads(text), "format": 2}))
    with pytest.raises(GcabError, match=f"has model format 2, this gcab {VERSION} reads format 1"):
        load_model(model)
    description.unlink()
    with pytest.raises(GcabError, match=r"model\.json is missing"):
        load_model(model)
    with pytest.raises(GcabError, match="cannot be read"):
        load_model(weights)
