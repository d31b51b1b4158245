"""ImageNet-100: the 100 ImageNet classes that classes.txt names, decoded once and kept beside the data.

`root/train/<class>/*`, `root/val/<class>/*` and `root/classes.txt` (one folder name a line, `#` starts a comment).
The decoded images (short side to `size`, centre square) stay in `root/.gcab-cache/` and are mapped to memory from
there; they are decoded again when the list of files, their sizes or their times change.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gcab.data.archive import LeftOut, existing_folder, image_files, listed, replacing, text_lines
from gcab.data.dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset
from gcab.data.decode import decode_into, decode_many
from gcab.data.images import ImageSet, Split
from gcab.errors import GcabError

CACHE_FORMAT = "1"  # raise when decoding changes, or old caches would hide it


def load(root: Path | None, split: Split, size: int, count: int = 100) -> ImageSet:
    """Read one split; labels follow the order of classes.txt."""
    place = existing_folder(root, "imagenet100")
    classes = _classes(place / "classes.txt", count)
    folder = place / ("train" if split == "train" else "val")
    missing = [name for name in classes if not (folder / name).is_dir()]
    if missing:
        raise GcabError(f"'{folder}' lacks the folders of {listed(missing)}, which classes.txt names: add them.")
    left_out = LeftOut()
    of_class = [image_files(folder / name, left_out) for name in classes]
    left_out.tell()
    empty = [name for name, files in zip(classes, of_class, strict=True) if not files]
    if empty:
        raise GcabError(f"'{folder}' has no images of {listed(empty)}: add some.")
    labels = torch.tensor([label for label, files in enumerate(of_class) for _ in files], dtype=torch.int64)
    files = [file for group in of_class for file in group]
    cache = place / ".gcab-cache" / f"{split}-{size}-{_fingerprint(place, files)}.npy"
    return ImageSet(_decoded(files, size, cache), labels, classes)


def _classes(table: Path, count: int) -> tuple[str, ...]:
    if not table.is_file():
        raise GcabError(f"'{table}' is missing: write the {count} class folders to use in it, one a line.")
    names = [line.split("#")[0].strip() for line in text_lines(table)]
    names = [name for name in names if name]
    if len(names) != count or len(set(names)) != count:
        raise GcabError(
            f"'{table}' must name {count} different classes but names {len(names)} ({len(set(names))} different)."
        )
    paths = [name for name in names if "/" in name or "\\" in name or name in (".", "..")]
    if paths:
        raise GcabError(f"'{table}' must hold names of folders, not paths such as {listed(paths)}.")
    return tuple(names)


def _fingerprint(root: Path, files: Sequence[Path]) -> str:
    digest = hashlib.sha256(CACHE_FORMAT.encode())
    for file in files:
        about = file.stat()
        digest.update(f"{file.relative_to(root).as_posix()}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _decoded(files: Sequence[Path], size: int, cache: Path) -> Tensor:
    shape = (len(files), 3, size, size)
    if not cache.is_file():
        try:
            cache.parent.mkdir(exist_ok=True)
            # A mapped file that outgrows the disk would end the process without a word.
            writable = os.access(cache.parent, os.W_OK) and shutil.disk_usage(cache.parent).free > 1.1 * np.prod(shape)
        except OSError:
            writable = False
        if not writable:
            return decode_many(files, size)
        with replacing(cache) as partial:
            images = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=shape)
            decode_into(torch.from_numpy(images), files)
            images.flush()
    try:
        images = np.load(cache, mmap_mode="c")  # copy on write: torch wants writable memory, the file stays as it is
    except (OSError, ValueError) as problem:
        raise GcabError(f"the cache '{cache}' cannot be read ({problem}): delete it and start again.") from problem
    if images.shape != shape or images.dtype != np.uint8:
        raise GcabError(f"the cache '{cache}' does not fit the images: delete it and start again.")
    return torch.from_numpy(images)


DATASET = Dataset(
    name="imagenet100",
    summary="ImageNet-100: the classes that classes.txt names, from train/ and val/",
    classes=100,
    size=224,
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
    crop="resized",
    flip=True,
    needs_root=True,
    load=load,
    tasks=(10,),
    preset={"encoder.patch": 16},
)
