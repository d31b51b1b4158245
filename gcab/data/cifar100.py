"""CIFAR-100 in its published Python form: 50,000 and 10,000 images of 32x32 pixels in 100 classes."""

import hashlib
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gcab.data.archive import download, given_root, md5_of, unpack
from gcab.data.dataset import Dataset
from gcab.data.decode import resized
from gcab.data.images import ImageSet, Split
from gcab.errors import GcabError

FOLDER = "cifar-100-python"
# The authors' class order 1.
ORDER = (
    *(87, 0, 52, 58, 44, 91, 68, 97, 51, 15, 94, 92, 10, 72, 49, 78, 61, 14, 8, 86, 84, 96, 18, 24, 32),
    *(45, 88, 11, 4, 67, 69, 66, 77, 47, 79, 93, 29, 50, 57, 83, 17, 81, 41, 12, 37, 59, 25, 20, 80, 73),
    *(1, 28, 6, 46, 62, 82, 53, 9, 31, 75, 38, 63, 33, 74, 27, 22, 36, 3, 16, 21, 60, 19, 70, 90, 89),
    *(43, 5, 42, 65, 76, 40, 30, 23, 85, 2, 95, 56, 48, 71, 64, 98, 13, 99, 7, 34, 55, 54, 26, 35, 39),
)


@dataclass(frozen=True)
class Release:
    """Where the files are published and the md5 sums that tell them from any other."""

    url: str
    archive: str
    files: Mapping[str, str]


PUBLISHED = Release(
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    archive="eb9058c3a382ffc7106e4002c42a8d85",
    files={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)


def load(root: Path | None, split: Split, size: int, release: Release = PUBLISHED) -> ImageSet:
    """Read one split from `root`, after fetching the archive into it where the files are missing."""
    folder = _folder(given_root(root, "cifar100"), release)
    content = _read(folder / split, release.files[split])
    meta = _read(folder / "meta", release.files["meta"])
    try:
        pixels = content[b"data"].pixels.reshape(-1, 3, 32, 32)  # (n, 3072), channels first
        labels = torch.tensor(content[b"fine_labels"], dtype=torch.int64)
        classes = tuple(name.decode("ascii") for name in meta[b"fine_label_names"])
        if labels.min() < 0 or labels.max() >= len(classes):
            raise ValueError("a label without a class")
        return ImageSet(resized(torch.from_numpy(pixels), size), labels, classes)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as problem:
        raise GcabError(f"'{folder}' does not hold CIFAR-100's arrays ({problem}): fetch it again.") from problem


def _folder(root: Path, release: Release) -> Path:
    if root.is_file():
        raise GcabError(f"the root '{root}' of data set 'cifar100' is a file: name the folder that holds it.")
    folder = root / FOLDER
    for candidate in (folder, root):
        if all((candidate / name).is_file() for name in release.files):
            return candidate
    archive = root / f"{FOLDER}.tar.gz"
    if not archive.is_file():
        download(release.url, archive, release.archive)
    elif md5_of(archive) != release.archive:
        raise GcabError(f"{archive} is not the published archive (its md5 differs): delete it and try again.")
    unpack(archive, {f"{FOLDER}/{name}": folder / name for name in release.files})
    return folder


def _read(path: Path, md5: str) -> dict[bytes, Any]:
    written = path.read_bytes()
    if hashlib.md5(written, usedforsecurity=False).hexdigest() != md5:
        raise GcabError(f"{path} is not the published file (its md5 differs): delete it and fetch it again.")
    try:
        content = _ArrayUnpickler(io.BytesIO(written), encoding="bytes").load()
    except Exception as problem:  # a damaged pickle may raise anything
        raise GcabError(f"{path} cannot be read ({problem}): delete it and fetch it again.") from problem
    if not isinstance(content, dict):
        raise GcabError(f"{path} does not hold a table: delete it and fetch it again.")
    return content


class _PickledType:
    """Stands for numpy's dtype and accepts plain bytes only: a type that holds objects could hold code."""

    def __init__(self, kind: object, *_: object) -> None:
        if kind != b"u1":
            raise pickle.UnpicklingError(f"arrays of type {kind!r} are refused")

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment say nothing about single bytes."""


class _PickledArray:
    """Stands for numpy's array: takes a shape and bytes, and calls nothing the file names."""

    pixels: NDArray[np.uint8]

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: tuple[int, tuple[int, ...], _PickledType, bool, bytes]) -> None:
        _, shape, kind, column_major, content = state
        if not isinstance(kind, _PickledType) or column_major or not isinstance(content, bytes):
            raise pickle.UnpicklingError("only plain row-major arrays are accepted")
        self.pixels = np.frombuffer(bytearray(content), np.uint8).reshape(shape)


class _ArrayUnpickler(pickle.Unpickler):
    """Builds byte arrays, lists, tables, numbers and strings, and refuses every other name."""

    def find_class(self, module: str, name: str) -> type:
        match module, name:
            case ("numpy.core.multiarray", "_reconstruct") | ("numpy", "ndarray"):
                return _PickledArray
            case ("numpy", "dtype"):
                return _PickledType
        raise pickle.UnpicklingError(f"the name {module}.{name} is refused")


DATASET = Dataset(
    name="cifar100",
    summary="CIFAR-100: 60,000 images of 32x32 pixels; fetched when missing",
    classes=100,
    size=32,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    crop="pad",
    flip=True,
    needs_root=True,
    load=load,
    tasks=(5, 10, 20),
    order=ORDER,
    preset={"scenario.order": "paper"},
)
