"""MNIST's idx files read the same gzipped or not; a cut or foreign one is named."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from gcab.data.fashion_mnist import FASHION
from gcab.data.idx import Idx, load
from gcab.data.mnist import MNIST
from gcab.data.registry import dataset
from gcab.errors import GcabError


def idx(shape: tuple[int, ...], values: list[int]) -> bytes:
    return bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


FILES = {
    "train-images-idx3-ubyte": idx((3, 2, 2), [0] * 4 + [50] * 4 + [100] * 4),
    "train-labels-idx1-ubyte": idx((3,), [2, 0, 9]),
    "t10k-images-idx3-ubyte": idx((1, 2, 2), [10, 20, 30, 40]),
    "t10k-labels-idx1-ubyte": idx((1,), [7]),
}


def write(folder: Path, zipped: bool, files: dict[str, bytes] = FILES) -> Idx:
    """The files, and a source that knows their sums."""
    folder.mkdir(parents=True, exist_ok=True)
    sums = {}
    for name, content in files.items():
        packed = gzip.compress(content)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(packed if zipped else content)
        sums[name] = hashlib.md5(packed, usedforsecurity=False).hexdigest()
    return replace(MNIST, sums=sums)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["", "raw", "MNIST/raw"])
def test_gzipped_or_not_here_or_in_raw(tmp_path: Path, zipped: bool, place: str) -> None:
    source = write(tmp_path / place, zipped)
    train, test = (load(tmp_path, split, 2, source) for split in ("train", "test"))
    assert train.labels.tolist() == [2, 0, 9]
    assert train.classes == tuple("0123456789")
    assert train.images.shape == (3, 3, 2, 2)
    assert train.images[:, 1, 0, 0].tolist() == [0, 50, 100]
    assert test.images[0].flatten(1).tolist() == [[10, 20, 30, 40]] * 3
    assert load(tmp_path, "train", 4, source).images.shape == (3, 3, 4, 4)


def test_foreign_gzipped_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path, zipped=True)
    with pytest.raises(GcabError, match=r"train-images-idx3-ubyte\.gz is not the published file"):
        load(tmp_path, "train", 28, MNIST)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("train-images-idx3-ubyte", FILES["train-images-idx3-ubyte"][:-1], "has 11 bytes for an array of"),
        ("train-images-idx3-ubyte", idx((3, 2, 3), [0] * 18), "2 x 3 pixels: they must be square"),
        ("train-images-idx3-ubyte", idx((0, 2, 2), []), "it is cut"),
        ("train-images-idx3-ubyte", FILES["train-labels-idx1-ubyte"], "no idx file of bytes in 3 dimensions"),
        ("train-images-idx3-ubyte", b"", "no idx file"),
        ("train-images-idx3-ubyte", idx((2**31, 2**31, 2**31), [0]), "has 1 bytes for an array of"),
        ("train-labels-idx1-ubyte", idx((2,), [1, 2]), "3 images but 2 labels"),
        ("train-labels-idx1-ubyte", idx((3,), [1, 2, 10]), "the label 10, but 10 classes"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    source = write(tmp_path, zipped=False, files={**FILES, name: content})
    with pytest.raises(GcabError, match=reason):
        load(tmp_path, "train", 28, source)


def test_a_cut_gzip_and_a_missing_file(tmp_path: Path) -> None:
    source = write(tmp_path, zipped=True)
    cut = tmp_path / "train-labels-idx1-ubyte.gz"
    cut.write_bytes(cut.read_bytes()[:-6])
    sums = {**source.sums, "train-labels-idx1-ubyte": hashlib.md5(cut.read_bytes()).hexdigest()}
    with pytest.raises(GcabError, match=r"train-labels-idx1-ubyte\.gz cannot be unpacked"):
        load(tmp_path, "train", 28, replace(source, sums=sums))
    cut.unlink()
    with pytest.raises(GcabError, match=r"lacks train-labels-idx1-ubyte\.gz: fetch https://.*/train-labels"):
        load(tmp_path, "train", 28, source)


def test_both_data_sets_are_known() -> None:
    assert dataset("mnist").classes == len(MNIST.classes) == 10
    assert dataset("fashion-mnist").classes == len(FASHION.classes) == 10
    assert not set(MNIST.sums.values()) & set(FASHION.sums.values())
