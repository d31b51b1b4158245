"""MNIST's idx files, gzipped or not, which other data sets of its form use as well."""

import gzip
import hashlib
import io
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gcab.data.archive import existing_folder
from gcab.data.dataset import Dataset
from gcab.data.decode import resized
from gcab.data.images import ImageSet, Split
from gcab.errors import GcabError
from gcab.sizes import Size

BYTES = 8  # idx's code for unsigned bytes
LARGEST = 256 * 2**20  # bytes of an unpacked file; the largest published one has 47 MB


@dataclass(frozen=True)
class Idx:
    """One data set of idx files: its classes, where it is published, and the md5 of each gzipped file."""

    name: str
    folder: str  # that torchvision makes for it
    address: str
    classes: tuple[str, ...]
    sums: Mapping[str, str]


def load(root: Path | None, split: Split, size: Size, source: Idx) -> ImageSet:
    """Read one split from the four files of a folder, or where torchvision leaves them in it."""
    folder = existing_folder(root, source.name)
    which = "train" if split == "train" else "t10k"
    images = _array(folder, f"{which}-images-idx3-ubyte", 3, source)
    labels = torch.from_numpy(_array(folder, f"{which}-labels-idx1-ubyte", 1, source).astype(np.int64))
    if len(images) != len(labels):
        raise GcabError(f"'{folder}' has {len(images)} images but {len(labels)} labels: fetch {source.address} again.")
    if labels.max() >= len(source.classes):
        raise GcabError(f"'{folder}' has the label {labels.max()}, but {len(source.classes)} classes: fetch it again.")
    colour = torch.from_numpy(images).unsqueeze(1).repeat(1, 3, 1, 1)  # (n, 3, 28, 28)
    return ImageSet(resized(colour, size), labels, source.classes)


def _array(folder: Path, name: str, dimensions: int, source: Idx) -> NDArray[np.uint8]:
    """One idx file: 0, 0, type, number of dimensions, each of them in four bytes, then the values."""
    path, content = _read(folder, name, source)
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, BYTES, dimensions)):
        raise GcabError(f"{path} is no idx file of bytes in {dimensions} dimensions: fetch it again.")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != np.prod(shape, dtype=object) or 0 in shape:
        raise GcabError(f"{path} has {len(content) - start} bytes for an array of {shape}: it is cut, fetch it again.")
    if dimensions == 3 and shape[1] != shape[2]:
        raise GcabError(f"{path} has images of {shape[1]} x {shape[2]} pixels: they must be square.")
    return np.frombuffer(bytearray(content[start:]), np.uint8).reshape(shape)


def _read(folder: Path, name: str, source: Idx) -> tuple[Path, bytes]:
    """The gzipped file, checked by its published MD5, or the unpacked one, which has none."""
    names = (f"{name}.gz", name, name.replace("-idx", ".idx"))  # a dot where it was unpacked by some programs
    places = (folder, folder / "raw", folder / source.folder / "raw")
    found = [place / each for place in places for each in names if (place / each).is_file()]
    if not found:
        raise GcabError(f"'{folder}' lacks {name}.gz: fetch {source.address}{name}.gz into it.")
    written = found[0].read_bytes()
    if found[0].suffix != ".gz":
        return found[0], written
    if hashlib.md5(written, usedforsecurity=False).hexdigest() != source.sums[name]:
        raise GcabError(f"{found[0]} is not the published file (its md5 differs): fetch it again.")
    try:
        with gzip.open(io.BytesIO(written)) as stream:
            return found[0], stream.read(LARGEST)
    except (OSError, EOFError, zlib.error) as problem:
        raise GcabError(f"{found[0]} cannot be unpacked ({problem}): fetch it again.") from problem


def idx_dataset(source: Idx, title: str, mean: float, std: float, flip: bool) -> Dataset:
    """The entry of such a data set; mean and deviation are those of all its training pixels."""
    return Dataset(
        name=source.name,
        summary=f"{title}: 70,000 grey images of 28x28 pixels",
        needs=f"the four idx files, gzipped or not, in DIR, DIR/raw or DIR/{source.folder}/raw",
        address=source.address,
        classes=10,
        size=28,
        mean=(mean, mean, mean),
        std=(std, std, std),
        crop="pad",
        flip=flip,
        load=partial(load, source=source),
        tasks=(5,),
        preset={"scenario.order": "sorted", "encoder.patch": 4},
    )
