"""From picture files of any size and kind to RGB bytes of one size, with a clear error for every bad file.

How a picture is converted is described in `gcab.data.pictures`.
"""

import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gcab.data.archive import File
from gcab.data.containers.contents import Bounds, TooLargeError
from gcab.data.containers.exif import ORIENTATION
from gcab.data.images import ImageSet
from gcab.data.pictures import TURNS, brought_to, damaged, enough_for, examine, read_picture
from gcab.errors import GcabError
from gcab.sizes import Size, covered, sides

BOUNDS = Bounds()  # of a user's own files

Progress = Callable[[int, int], None]  # (done, total)


def read_image(source: Path | IO[bytes], size: Size, name: str | None = None) -> Tensor:
    """One image file as (3, height, width) bytes."""
    content, label = _content(source, name)
    return as_pixels(read_picture(examine(content, label, BOUNDS, enough_for(size)), size, label))


def image_dimensions(source: Path) -> tuple[int, int]:
    """Width and height as stored, from the file's structure: no pixel is decoded."""
    content, label = _content(source, None)
    contents = examine(content, label, BOUNDS, enough=1)
    return contents.width, contents.height


def from_pil(image: Image.Image, size: Size) -> Tensor:
    """An image already in memory as (3, height, width) bytes, treated like one from a file."""
    label = "the image"
    if image.width * image.height > BOUNDS.pixels:
        raise TooLargeError(f"{label} has more than {BOUNDS.pixels // 10**6} million pixels: shrink it first.")
    try:
        frames = getattr(image, "n_frames", 1)
        image.load()
        orientation = image.getexif().get(ORIENTATION, 1)
    except Exception as problem:  # it may have been opened and not read yet
        raise damaged(label, problem) from problem
    if frames > 1 and image.format != "MPO":  # an MPO is a photo whose further frames are previews
        raise GcabError(f"{label} is animated or has several pages ({frames}): save one of them as PNG.")
    return as_pixels(brought_to(image, size, orientation if orientation in TURNS else 1, label))


def as_pixels(picture: Image.Image) -> Tensor:
    """(height, width, 3) -> (3, height, width)."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def decode_many(files: Sequence[File], size: Size, progress: Progress | None = None) -> Tensor:
    """All images in the order given, as (n, 3, height, width) bytes."""
    images = torch.empty(len(files), 3, *sides(size), dtype=torch.uint8)
    decode_into(images, files, progress)
    return images


def decode_into(images: Tensor, files: Sequence[File], progress: Progress | None = None) -> None:
    """Decode into a tensor, which may be memory-mapped, as ImageNet does not fit into memory."""

    height, width = images.shape[2:]

    def decode(index: int) -> None:
        with _opened(files[index]) as stream:
            images[index] = read_image(stream, (height, width), str(files[index]))

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:  # Pillow decodes without the interpreter lock
        for done, _ in enumerate(pool.map(decode, range(len(files))), start=1):
            if progress:
                progress(done, len(files))


def image_set(labelled: Sequence[tuple[File, int]], classes: tuple[str, ...], size: Size) -> ImageSet:
    """Decode labelled files into what every data set delivers."""
    labels = torch.tensor([label for _, label in labelled], dtype=torch.int64)
    return ImageSet(decode_many([file for file, _ in labelled], size), labels, classes)


def resized(images: Tensor, size: Size) -> Tensor:
    """The centre of images (n, 3, H, W) at another size, for data sets that come as arrays."""
    height, width = images.shape[2:]
    high, wide = (max(1, round(side)) for side in covered(height, width, size))
    top, left = (height - high) // 2, (width - wide) // 2
    centre = images[:, :, top : top + high, left : left + wide]
    if (high, wide) == sides(size):
        return centre
    return torch.nn.functional.interpolate(centre, sides(size), mode="bicubic", antialias=True)


def _content(source: Path | IO[bytes], name: str | None) -> tuple[bytes, str]:
    """A file's bytes, no more than are ever decoded, and its name in messages."""
    label = name or (str(source) if isinstance(source, Path) else "the image")
    if not isinstance(source, Path):
        return source.read(BOUNDS.file_bytes + 1), label
    try:
        with _opened(source) as stream:
            return stream.read(BOUNDS.file_bytes + 1), label
    except OSError as problem:
        raise GcabError(f"image {label} cannot be read ({problem.strerror}): check the disk.") from problem


def _opened(file: File) -> IO[bytes]:
    """Open a regular file; refuse what could block forever, such as a pipe without a writer."""
    try:
        if isinstance(file, Path) and not stat.S_ISREG(file.stat().st_mode):
            raise GcabError(f"image {file} is no plain file but a folder, a pipe or a device: check the path.")
        return file.open("rb")
    except OSError as problem:
        raise GcabError(f"image {file} cannot be opened ({problem.strerror}): check the path.") from problem
