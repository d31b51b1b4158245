"""ImageNet-100: the 100 ImageNet classes that classes.txt names, decoded once and kept beside the data.

`root/train/<class>/*`, `root/val/<class>/*` and `root/classes.txt` (one folder name a line, `#` starts a comment).
The decoded images (short side to `size`, centre square) stay in `root/.gcab-cache/` (gcab/data/cache.py).
"""

from pathlib import Path

import torch

from gcab.data.archive import LeftOut, existing_folder, image_files, listed, text_lines
from gcab.data.cache import decoded, fingerprint, stamps
from gcab.data.dataset import SHARP_EYE, Dataset
from gcab.data.images import ImageSet, Split
from gcab.errors import GcabError
from gcab.sizes import Size, size_name

# The authors' class order, which is numpy.random.RandomState(1993).permutation(100): positions in classes.txt. They
# number the sorted class folders, so their order is that of a classes.txt that is sorted.
ORDER = (
    *(68, 56, 78, 8, 23, 84, 90, 65, 74, 76, 40, 89, 3, 92, 55, 9, 26, 80, 43, 38, 58, 70, 77, 1, 85),
    *(19, 17, 50, 28, 53, 13, 81, 45, 82, 6, 59, 83, 16, 15, 44, 91, 41, 72, 60, 79, 52, 20, 10, 31, 54),
    *(37, 95, 14, 71, 96, 98, 97, 2, 64, 66, 42, 22, 35, 86, 24, 34, 87, 21, 99, 0, 88, 27, 18, 94, 11),
    *(12, 47, 25, 30, 46, 62, 69, 36, 61, 7, 63, 75, 5, 32, 4, 51, 48, 73, 93, 39, 67, 29, 49, 57, 33),
)


def load(root: Path | None, split: Split, size: Size, count: int = 100) -> ImageSet:
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
    name = f"{split}-{size_name(size)}-{fingerprint(stamps(place, files))}"
    return ImageSet(decoded(files, size, name, place), labels, classes)


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


DATASET = Dataset(
    name="imagenet100",
    summary="ImageNet-100: the classes that classes.txt names, from train/ and val/",
    needs="train/<class>/*, val/<class>/* and classes.txt with 100 class folders; decoded images take 20 GB",
    address="https://image-net.org/download.php",
    classes=100,
    size=224,
    load=load,
    tasks=(10,),
    order=ORDER,
    preset={"scenario.order": "paper", "encoder.patch": 16, **SHARP_EYE},
)
