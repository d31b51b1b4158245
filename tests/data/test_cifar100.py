"""CIFAR-100 is read from small files of the same form; nothing a file says is ever run or written elsewhere."""

import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from gcab.data.cifar100 import FOLDER, load
from gcab.data.cifar_files import Release
from gcab.errors import GcabError

ARCHIVE = f"{FOLDER}.tar.gz"


def text(value: bytes) -> bytes:
    return b"T" + struct.pack("<I", len(value)) + value  # a Python 2 string, which no Python 3 pickler writes


def numbers(values: list[int]) -> bytes:
    return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"


def array(rows: int, content: bytes, kind: bytes = b"u1", column_major: bytes = b"\x89") -> bytes:
    build = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"tR"
    dtype = b"cnumpy\ndtype\n(" + text(kind) + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xff"
    dtype += b"J\xff\xff\xff\xffK\x00tb"
    shape = b"(M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", 3072) + b"t"
    return build + b"(K\x01" + shape + dtype + column_major + content + b"tb"


def table(**entries: bytes) -> bytes:
    return b"\x80\x02}(" + b"".join(text(name.encode()) + value for name, value in entries.items()) + b"u."


def split_file(labels: list[int], first: int) -> bytes:
    pixels = bytes((first + index // 1024) % 256 for index in range(3072 * len(labels)))  # one shade per channel
    return table(fine_labels=numbers(labels), data=array(len(labels), text(pixels)))


META = table(fine_label_names=b"](" + text(b"apple") + text(b"bear") + text(b"crab") + b"e")
FILES = {"train": split_file([2, 0, 1, 2], first=10), "test": split_file([1, 2], first=100), "meta": META}


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def release(files: Mapping[str, bytes], archive: bytes = b"", url: str = "http://127.0.0.1:9/none") -> Release:
    return Release(url, md5(archive), {name: md5(content) for name, content in files.items()})


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def tarred(members: Mapping[str, bytes | None]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "../outside"
            else:
                info.size = len(content)
            tar.addfile(info, None if content is None else io.BytesIO(content))
    return buffer.getvalue()


INSIDE = {f"{FOLDER}/{name}": content for name, content in FILES.items()}


@pytest.mark.parametrize("place", [FOLDER, ""])
def test_folder_or_its_parent_is_read(tmp_path: Path, place: str) -> None:
    write(tmp_path / place, FILES)
    train = load(tmp_path, "train", 32, release(FILES))
    test = load(tmp_path, "test", 32, release(FILES))
    assert train.classes == test.classes == ("apple", "bear", "crab")
    assert train.labels.tolist() == [2, 0, 1, 2]
    assert test.labels.tolist() == [1, 2]
    assert train.images.shape == (4, 3, 32, 32)
    assert train.images.dtype == torch.uint8
    assert train.images[1, :, 5, 7].tolist() == [13, 14, 15]
    assert test.images[0].flatten(1).unique(dim=1).tolist() == [[100], [101], [102]]


def test_other_size_resizes(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    images = load(tmp_path, "train", 16, release(FILES)).images
    assert images.shape == (4, 3, 16, 16)
    assert images[0, :, 3, 3].tolist() == [10, 11, 12]


def test_no_root_and_a_file_as_root(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match=r"cifar100.*name it as the root"):
        load(None, "train", 32)
    (tmp_path / "file").touch()
    with pytest.raises(GcabError, match="is a file: name the folder"):
        load(tmp_path / "file", "train", 32)


def test_changed_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    (tmp_path / "train").write_bytes(FILES["train"] + b" ")
    with pytest.raises(GcabError, match="train is not the published file"):
        load(tmp_path, "train", 32, release(FILES))
    assert len(load(tmp_path, "test", 32, release(FILES)).labels) == 2


def test_unpacks_an_archive_that_lies_in_the_root(tmp_path: Path) -> None:
    content = tarred(INSIDE)
    (tmp_path / ARCHIVE).write_bytes(content)
    assert load(tmp_path, "train", 32, release(FILES, content)).labels.tolist() == [2, 0, 1, 2]
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["meta", "test", "train"]
    (tmp_path / ARCHIVE).unlink()
    assert load(tmp_path, "test", 32, release(FILES, content)).labels.tolist() == [1, 2]


def test_incomplete_folder_is_completed_from_the_archive(tmp_path: Path) -> None:
    content = tarred(INSIDE)
    (tmp_path / ARCHIVE).write_bytes(content)
    write(tmp_path / FOLDER, {"meta": META})
    assert load(tmp_path, "train", 32, release(FILES, content)).labels.tolist() == [2, 0, 1, 2]


def test_fetches_what_is_missing(tmp_path: Path) -> None:
    served = tmp_path / "served.tar.gz"
    served.write_bytes(tarred(INSIDE))
    source = release(FILES, served.read_bytes(), served.as_uri())
    assert load(tmp_path / "new" / "root", "test", 32, source).labels.tolist() == [1, 2]
    assert sorted(path.name for path in (tmp_path / "new" / "root").iterdir()) == [FOLDER, ARCHIVE]


def test_unreachable_address_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match=r"cannot be fetched .*put it in '.*root'"):
        load(tmp_path / "root", "train", 32, release(FILES))
    assert not (tmp_path / "root").exists()


def test_damaged_download_leaves_nothing(tmp_path: Path) -> None:
    served = tmp_path / "served.tar.gz"
    served.write_bytes(tarred(INSIDE)[:-20])
    with pytest.raises(GcabError, match="arrived damaged"):
        load(tmp_path / "root", "train", 32, release(FILES, tarred(INSIDE), served.as_uri()))
    assert list((tmp_path / "root").iterdir()) == []


def test_other_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / ARCHIVE).write_bytes(b"something else")
    with pytest.raises(GcabError, match="not the published archive"):
        load(tmp_path, "train", 32, release(FILES, tarred(INSIDE)))
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize("content", [b"no archive at all", tarred(INSIDE)[:-200]])
def test_archive_that_cannot_be_unpacked(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ARCHIVE).write_bytes(content)
    with pytest.raises(GcabError, match="cannot be unpacked"):
        load(tmp_path, "train", 32, release(FILES, content))


def test_members_that_lead_elsewhere_are_never_written(tmp_path: Path) -> None:
    root = tmp_path / "a" / "root"
    root.mkdir(parents=True)
    evil = {"../evil": b"x", f"{FOLDER}/../../evil": b"x", str(tmp_path / "evil"): b"x", f"{FOLDER}/evil": b"x"}
    content = tarred({**evil, **INSIDE})
    (root / ARCHIVE).write_bytes(content)
    assert len(load(root, "train", 32, release(FILES, content)).labels) == 4
    assert [path for path in tmp_path.rglob("*") if path.name == "evil"] == []


def test_link_in_place_of_a_member_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(FILES["train"])
    (tmp_path / "root").mkdir()
    content = tarred({**INSIDE, f"{FOLDER}/train": None})
    (tmp_path / "root" / ARCHIVE).write_bytes(content)
    with pytest.raises(GcabError, match="lacks cifar-100-python/train"):
        load(tmp_path / "root", "train", 32, release(FILES, content))


class Evil:
    """Creates a file when unpickled by an unpickler that trusts it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (f"touch '{self.mark}'",)


def refused(tmp_path: Path, train: bytes, reason: str) -> None:
    files = {**FILES, "train": train}
    write(tmp_path, files)
    with pytest.raises(GcabError, match=reason):
        load(tmp_path, "train", 32, release(files))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_in_a_pickle_is_not_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "mark"
    evil = pickle.dumps(Evil(mark), protocol)
    refused(tmp_path, evil, r"system is refused")
    assert not mark.exists()
    pickle.loads(evil)  # the same bytes do act when trusted, so the refusal above is what stopped them
    assert mark.exists()


@pytest.mark.parametrize(
    "name",
    ["builtins\neval", "builtins\ngetattr", "numpy\nload", "numpy.core.multiarray\nscalar", "numpy\ndtype.type"],
)
def test_every_other_name_is_refused(tmp_path: Path, name: str) -> None:
    refused(tmp_path, b"\x80\x02c" + name.encode() + b"\n.", "is refused")


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        (table(data=array(1, b"](K\x01e", kind=b"O8")), "type b'O8' are refused"),
        (table(data=array(1, text(bytes(3072)), column_major=b"\x88")), "row-major"),
        (table(data=array(1, b"J\xff\xff\xff\x7f")), "plain row-major"),  # a number would reserve that many bytes
        (table(data=array(2, text(bytes(3072)))), "cannot reshape"),
        (b"\x80\x02](.", "cannot be read"),
        (b"\x80\x02].", "does not hold a table"),
        (b"", "cannot be read"),
        (table(fine_labels=numbers([0])), "does not hold CIFAR-100's arrays"),
        (table(fine_labels=numbers([0]), data=numbers([0])), "does not hold CIFAR-100's arrays"),
        (split_file([0, 3], 0), "a label without a class"),
        (table(fine_labels=numbers([0]), data=array(2, text(bytes(6144)))), "2 images but 1 labels"),
        (table(fine_labels=numbers([]), data=array(0, text(b""))), "does not hold CIFAR-100's arrays"),
    ],
)
def test_files_of_another_form_are_refused(tmp_path: Path, train: bytes, reason: str) -> None:
    refused(tmp_path, train, reason)
