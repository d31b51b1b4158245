"""The published Python form of the CIFAR data sets, unpickled without calling anything that a file names."""

import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gcab.data.archive import download, given_root, md5_of, unpack
from gcab.data.decode import resized
from gcab.data.images import ImageSet
from gcab.errors import GcabError
from gcab.sizes import Size


@dataclass(frozen=True)
class Release:
    """Where the files are published and the md5 sums that tell them from any other; an empty one is not known."""

    url: str
    archive: str
    files: Mapping[str, str]


def release_folder(root: Path | None, dataset: str, name: str, tarred: str, release: Release) -> Path:
    """The folder with all files of a release, after fetching and unpacking its archive where they are missing."""
    place = given_root(root, dataset)
    if place.is_file():
        raise GcabError(f"the root '{place}' of data set '{dataset}' is a file: name the folder that holds it.")
    folder = place / name
    for candidate in (folder, place):
        if all((candidate / file).is_file() for file in release.files):
            return candidate
    archive = place / tarred
    if not archive.is_file():
        download(release.url, archive, release.archive)
    elif md5_of(archive) != release.archive:
        raise GcabError(f"{archive} is not the published archive (its md5 differs): delete it and try again.")
    unpack(archive, {f"{name}/{file}": folder / file for file in release.files})
    return folder


def read_table(path: Path, md5: str) -> dict[bytes, Any]:
    """The one table that a file of the release holds."""
    written = path.read_bytes()
    if md5 and hashlib.md5(written, usedforsecurity=False).hexdigest() != md5:
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


def image_set(
    batches: Sequence[Mapping[bytes, Any]],
    labels_in: bytes,
    meta: Mapping[bytes, Any],
    names_in: bytes,
    size: Size,
    complaint: str,
) -> ImageSet:
    """The images of some tables (n, 3072), channels first, at a size; `complaint` begins the error message."""
    try:
        pixels = np.concatenate([batch[b"data"].pixels for batch in batches]).reshape(-1, 3, 32, 32)
        labels = torch.tensor([label for batch in batches for label in batch[labels_in]], dtype=torch.int64)
        classes = tuple(name.decode("ascii") for name in meta[names_in])
        if labels.min() < 0 or labels.max() >= len(classes):
            raise ValueError("a label without a class")
        return ImageSet(resized(torch.from_numpy(pixels), size), labels, classes)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as problem:
        raise GcabError(f"{complaint} ({problem}): fetch it again.") from problem
