"""A file is the old one or the new one, and a refusal of the operating system is one sentence."""

import errno
import hashlib
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gcab.errors import GcabError
from gcab.runs.files import remove_temporaries, sha256, write_bytes, write_json, writing


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let the operating system really refuse: no file may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    def refusal(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, refusal)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_written_files_are_complete_and_alone(tmp_path: Path) -> None:
    write_bytes(tmp_path / "new" / "a.bin", b"one")
    write_bytes(tmp_path / "new" / "a.bin", b"two")
    write_json(tmp_path / "new" / "b.json", {"name": "caf\u00e9 \udcff", "list": [1, None]})
    assert names(tmp_path / "new") == ["a.bin", "b.json"]
    assert (tmp_path / "new" / "a.bin").read_bytes() == b"two"
    assert json.loads((tmp_path / "new" / "b.json").read_text()) == {"name": "caf\u00e9 \udcff", "list": [1, None]}
    assert sha256(tmp_path / "new" / "a.bin") == hashlib.sha256(b"two").hexdigest()


def test_files_have_the_permissions_of_any_other_file(tmp_path: Path) -> None:
    write_bytes(tmp_path / "ours", b"")
    (tmp_path / "ordinary").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_json_has_no_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert names(tmp_path) == []


def test_the_old_file_is_there_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")
    with writing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_who_reads_the_old_file_reads_it_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")
    with path.open("rb") as reader:
        write_bytes(path, b"new")
        assert reader.read() == b"old"


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError])
def test_an_interrupted_writer_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, problem: type[BaseException]
) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")

    def interrupted() -> None:
        with writing(path) as file:
            file.write(b"half")
            raise problem

    with pytest.raises(problem):
        interrupted()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "disk full while saving .*/a: free some space and run the same command again; nothing saved"),
        (errno.EDQUOT, "disk full while saving"),
        (errno.EACCES, "no permission to save .*/a: make its folder writable"),
        (errno.EROFS, "no permission to save"),
        (errno.EIO, r"cannot save .*/a \(Input/output error\)"),
    ],
)
def test_a_refused_write_is_one_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    write_bytes(tmp_path / "a", b"old")
    refuse(monkeypatch, "fsync", number)
    with pytest.raises(GcabError, match=sentence) as caught:
        write_bytes(tmp_path / "a", b"new")
    assert "\n" not in str(caught.value)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_real_refusal_in_the_middle_of_a_file(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"old")
    with file_size_limit(100_000), pytest.raises(GcabError, match=r"cannot save .* \(File too large\)"):
        write_bytes(tmp_path / "a", bytes(300_000))
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(GcabError, match="cannot save"):
        write_bytes(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(GcabError, match=r"cannot save .*/a/b"):
        write_bytes(tmp_path / "a" / "b", b"new")


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path: Path) -> None:
    others = ["..onnx.12ab34cd.tmp", ".b.onnx.12ab34cd.tmp", ".a.onnx.note.tmp", ".axonnx.12ab34cd.tmp", "a.onnx.tmp"]
    for name in (".a.onnx.aee7a3d8.tmp", *others):
        (tmp_path / name).touch()
    write_bytes(tmp_path / "a.onnx", b"new")
    assert names(tmp_path) == sorted([*others, "a.onnx"])


def test_a_writer_at_work_is_not_disturbed_by_another(tmp_path: Path) -> None:
    with writing(tmp_path / "a") as first:
        first.write(b"first")
        write_bytes(tmp_path / "a", b"second")
        assert (tmp_path / "a").read_bytes() == b"second"
    assert (tmp_path / "a").read_bytes() == b"first"
    assert names(tmp_path) == ["a"]


def test_leftovers_go_and_files_stay(tmp_path: Path) -> None:
    for name in (".a.json.12ab.tmp", "a.json", ".hidden", "b.tmp"):
        (tmp_path / name).touch()
    remove_temporaries(tmp_path)
    assert names(tmp_path) == [".hidden", "a.json", "b.tmp"]
    remove_temporaries(tmp_path / "missing")
