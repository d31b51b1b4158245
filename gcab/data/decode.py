"""From image files of any size and kind to square colour bytes, with a clear sentence for every bad file.

Every image is turned upright (EXIF), laid on white where it is transparent, shrunk or enlarged (bicubic, antialiased)
until its short side is `size`, and cropped to its centre square.
"""

import os
import stat
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from gcab.data.archive import File
from gcab.data.images import ImageSet
from gcab.errors import GcabError

MOST_PIXELS = 64_000_000
# Only formats that Pillow reads by itself: EPS, for one, would start another program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
OPENING = threading.Lock()  # how warnings are treated is the same for all threads

Progress = Callable[[int, int], None]  # (done, total)


def read_image(source: Path | IO[bytes], size: int, name: str | None = None) -> Tensor:
    """One image file as (3, size, size) bytes."""
    # Twice the target keeps the antialiasing honest when a JPEG is decoded at reduced scale.
    return _square(open_image(source, name, enough=2 * size), size)


def from_pil(image: Image.Image, size: int) -> Tensor:
    """An image already in memory as (3, size, size) bytes, treated like one from a file."""
    return _square(_upright_rgb(image, "the image"), size)


def open_image(source: Path | IO[bytes], name: str | None = None, enough: int | None = None) -> Image.Image:
    """The file's picture, upright and in RGB; `enough` allows a cheaper, smaller decoding of at least that side."""
    if isinstance(source, Path):
        with _opened(source) as stream:
            return open_image(stream, name or str(source), enough)
    label = name or "the image"
    if not source.read(1):
        raise GcabError(f"{label} is empty (0 bytes): remove it or fetch it again.")
    source.seek(0)
    try:
        with OPENING, warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(source, formats=FORMATS)  # its header only
    except UnidentifiedImageError as problem:
        raise GcabError(f"{label} is not an image that can be read: remove it or save it as PNG.") from problem
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as problem:
        raise _too_large(label) from problem
    except Exception as problem:  # Pillow's readers raise almost anything on damaged bytes
        raise _damaged(label, problem) from problem
    with image:
        return _upright_rgb(image, label, enough)


def decode_many(files: Sequence[File], size: int, progress: Progress | None = None) -> Tensor:
    """All images in the order given, as (n, 3, size, size) bytes."""
    images = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    decode_into(images, files, progress)
    return images


def decode_into(images: Tensor, files: Sequence[File], progress: Progress | None = None) -> None:
    """Fill a tensor that may be a file mapped to memory, since ImageNet does not fit in it."""

    def decode(index: int) -> None:
        with _opened(files[index]) as stream:
            images[index] = read_image(stream, images.shape[-1], str(files[index]))

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:  # Pillow decodes without the interpreter lock
        for done, _ in enumerate(pool.map(decode, range(len(files))), start=1):
            if progress:
                progress(done, len(files))


def image_set(labelled: Sequence[tuple[File, int]], classes: tuple[str, ...], size: int) -> ImageSet:
    """Decode labelled files into what every data set delivers."""
    labels = torch.tensor([label for _, label in labelled], dtype=torch.int64)
    return ImageSet(decode_many([file for file, _ in labelled], size), labels, classes)


def resized(images: Tensor, size: int) -> Tensor:
    """Square images (n, 3, H, H) at another size, for data sets that come as arrays."""
    if images.shape[-1] == size:
        return images
    return torch.nn.functional.interpolate(images, (size, size), mode="bicubic", antialias=True)


def _opened(file: File) -> IO[bytes]:
    """Nothing is opened that may never give a byte, such as a pipe without a writer."""
    try:
        if isinstance(file, Path) and not stat.S_ISREG(file.stat().st_mode):
            raise GcabError(f"image {file} is no plain file but a folder, a pipe or a device: check the path.")
        return file.open("rb")
    except OSError as problem:
        raise GcabError(f"image {file} cannot be opened ({problem.strerror}): check the path.") from problem


def _upright_rgb(image: Image.Image, label: str, enough: int | None = None) -> Image.Image:
    if image.width * image.height > MOST_PIXELS:
        raise _too_large(label)
    try:
        frames = getattr(image, "n_frames", 1)
        if enough is not None:
            image.draft(None, (enough, enough))
        image.load()
        upright = ImageOps.exif_transpose(image)
    except Exception as problem:  # as above: the pixels and the EXIF block are read only now
        raise _damaged(label, problem) from problem
    if frames > 1 and image.format != "MPO":  # an MPO is a photo whose further frames are previews
        raise GcabError(f"{label} is animated or has several pages ({frames}): save one of them as PNG.")
    try:
        return _rgb(upright, label)
    except GcabError:
        raise
    except Exception as problem:  # an odd palette or mode, or no memory left
        raise _damaged(label, problem) from problem


def _rgb(image: Image.Image, label: str) -> Image.Image:
    if image.mode == "F":
        raise GcabError(f"{label} has floating-point pixels of unknown range: save it with 8 or 16 bits.")
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise GcabError(f"{label} has pixel values outside 0..65535: save it with 8 or 16 bits.")
        return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")  # 65535 / 257 = 255
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return image.convert("RGB")


def _square(image: Image.Image, size: int) -> Tensor:
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    square = image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=2.0)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1).contiguous()  # (size, size, 3) -> (3, size, size)


def _too_large(label: str) -> GcabError:
    return GcabError(f"{label} has more than {MOST_PIXELS // 10**6} million pixels: shrink it first.")


def _damaged(label: str, problem: Exception) -> GcabError:
    return GcabError(f"{label} is damaged or cut short ({problem}): remove it or fetch it again.")
