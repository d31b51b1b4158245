"""CIFAR-10 is read from small files of the same form, its five parts in their order."""

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from gcab.data.cifar10 import FOLDER, PUBLISHED, TRAIN, load
from gcab.data.cifar_files import Release
from gcab.errors import GcabError

from .test_cifar100 import array, numbers, table, tarred, text, write


def batch(labels: list[int], first: int) -> bytes:
    pixels = bytes((first + index // 1024) % 256 for index in range(3072 * len(labels)))  # one shade per channel
    return table(labels=numbers(labels), data=array(len(labels), text(pixels)))


FILES = {name: batch([index % 3, 2], first=10 * index) for index, name in enumerate(TRAIN)}
FILES["test_batch"] = batch([1, 0, 2], first=200)
FILES["batches.meta"] = table(label_names=b"](" + text(b"plane") + text(b"car") + text(b"bird") + b"e")


def release(files: Mapping[str, bytes], archive: bytes = b"") -> Release:
    sums = {name: hashlib.md5(content, usedforsecurity=False).hexdigest() for name, content in files.items()}
    url = "http://127.0.0.1:9/cifar-10-python.tar.gz"
    return Release(url, hashlib.md5(archive, usedforsecurity=False).hexdigest(), sums)


@pytest.mark.parametrize("place", [FOLDER, ""])
def test_all_parts_in_their_order(tmp_path: Path, place: str) -> None:
    write(tmp_path / place, FILES)
    train, test = (load(tmp_path, split, 32, release(FILES)) for split in ("train", "test"))
    assert train.classes == test.classes == ("plane", "car", "bird")
    assert train.labels.tolist() == [0, 2, 1, 2, 2, 2, 0, 2, 1, 2]
    assert train.images[:, 0, 0, 0].tolist() == [0, 3, 10, 13, 20, 23, 30, 33, 40, 43]
    assert test.labels.tolist() == [1, 0, 2]
    assert load(tmp_path, "test", 16, release(FILES)).images.shape == (3, 3, 16, 16)


def test_from_its_archive(tmp_path: Path) -> None:
    archive = tarred({f"{FOLDER}/{name}": content for name, content in FILES.items()})
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(archive)
    assert len(load(tmp_path, "train", 32, release(FILES, archive)).labels) == 10
    assert (tmp_path / FOLDER / "data_batch_5").is_file()


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match=r"cifar-10-python\.tar\.gz is not there and cannot be fetched"):
        load(tmp_path, "train", 32, release(FILES))
    write(tmp_path, FILES)
    with pytest.raises(GcabError, match="data_batch_1 is not the published file"):
        load(tmp_path, "train", 32)
    wrong = {**FILES, "test_batch": batch([1, 7], first=0)}
    write(tmp_path, wrong)
    with pytest.raises(GcabError, match=r"does not hold CIFAR-10's arrays.*a label without a class"):
        load(tmp_path, "test", 32, release(wrong))
    evil = {**FILES, "test_batch": pickle.dumps(print)}
    write(tmp_path, evil)
    with pytest.raises(GcabError, match=r"test_batch cannot be read \(the name .*print is refused"):
        load(tmp_path, "test", 32, release(evil))
    assert set(PUBLISHED.files) == set(FILES)
