"""Tiny ImageNet: 200 classes of 64x64 images, from its folder or straight from its zip; the test split is `val`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from gcab.data.archive import IMAGE_SUFFIXES, File, existing_folder, listed, text_lines
from gcab.data.cache import decoded, fingerprint
from gcab.data.dataset import SHARP_EYE, Dataset
from gcab.data.images import ImageSet, Split
from gcab.data.tree import LazyFiles, Tree, no_collecting, open_tree
from gcab.errors import GcabError
from gcab.sizes import Size, size_name

FOLDER = "tiny-imagenet-200"
SUFFIXES = tuple(IMAGE_SUFFIXES)
ADDRESS = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
# The authors' class order: positions among the sorted codes, as tools that read class folders number them.
ORDER = (
    *(165, 58, 126, 55, 188, 44, 199, 18, 123, 34, 92, 61, 21, 144, 57, 73, 19, 198, 41, 139),
    *(56, 98, 171, 3, 136, 109, 72, 145, 159, 195, 10, 62, 53, 76, 192, 65, 99, 174, 133, 115),
    *(49, 51, 100, 153, 142, 39, 111, 36, 191, 146, 134, 189, 96, 187, 197, 95, 122, 37, 179, 113),
    *(52, 164, 28, 7, 186, 90, 156, 64, 17, 132, 63, 32, 85, 130, 158, 59, 46, 38, 131, 43),
    *(129, 147, 2, 149, 169, 4, 121, 117, 48, 138, 86, 177, 170, 120, 157, 173, 193, 78, 87, 184),
    *(154, 118, 50, 54, 168, 106, 30, 97, 31, 68, 161, 91, 40, 119, 60, 190, 183, 29, 16, 23),
    *(14, 27, 24, 128, 12, 101, 47, 124, 0, 22, 151, 107, 84, 81, 25, 140, 172, 112, 162, 82),
    *(69, 75, 104, 155, 103, 102, 66, 6, 150, 166, 45, 175, 89, 148, 178, 135, 33, 108, 79, 125),
    *(5, 35, 13, 8, 94, 116, 110, 1, 167, 67, 176, 70, 26, 80, 143, 15, 88, 105, 93, 11),
    *(42, 71, 182, 180, 141, 83, 185, 196, 9, 137, 127, 181, 163, 114, 74, 20, 194, 77, 160, 152),
)

Labelled = tuple[list[str], list[str], list[int]]  # names of files, stamps that change with them, labels


@dataclass(frozen=True)
class Contents:
    """One split as its files tell it, with no image opened."""

    names: Sequence[str]
    mark: str  # fingerprint of the files
    labels: Tensor
    classes: tuple[str, ...]


def load(root: Path | None, split: Split, size: Size, count: int = 200) -> ImageSet:
    """Read one split; labels follow the sorted codes of wnids.txt, which is not sorted itself."""
    place = _place(existing_folder(root, "tiny-imagenet"))
    if place.is_dir():
        with no_collecting(), open_tree(place, FOLDER) as tree:
            found = _contents(tree, split, count)
    else:
        about = place.stat()
        found = _of_zip(place, about.st_size, about.st_mtime_ns, count)[split]
    with LazyFiles(place, FOLDER, found.names) as files:
        name, folder = f"{split}-{size_name(size)}-{found.mark}", place if place.is_dir() else place.parent
        return ImageSet(decoded(files, size, name, folder), found.labels, found.classes)


@lru_cache(maxsize=1)
def _of_zip(place: Path, size: int, changed: int, count: int) -> dict[Split, Contents]:  # noqa: ARG001
    """Both splits of a zip, remembered, as listing it takes most of the time of a start from the cache."""
    with no_collecting(), open_tree(place, FOLDER) as tree:
        return {"train": _contents(tree, "train", count), "test": _contents(tree, "test", count)}


def _contents(tree: Tree, split: Split, count: int) -> Contents:
    table = _required(tree, "wnids.txt")
    codes = sorted(text_lines(table))
    if len(codes) != count or len(set(codes)) != count:
        raise GcabError(f"{table} must name {count} different classes: fetch the data again.")
    classes = _class_names(codes, text_lines(_required(tree, "words.txt")))
    names, stamps, labels = _validation(tree, codes)  # in any case: its mistakes are told before anything is decoded
    if split == "train":
        names, stamps, labels = _train(tree, codes)
    mark = fingerprint(f"{name}\0{stamp}" for name, stamp in zip(names, stamps, strict=True))
    return Contents(names, mark, torch.tensor(labels, dtype=torch.int64), classes)


def _place(root: Path) -> Path:
    for candidate in (root / FOLDER, root):
        if (candidate / "wnids.txt").is_file():
            return candidate
    archive = root / f"{FOLDER}.zip"
    if archive.is_file():
        return archive
    raise GcabError(f"'{root}' holds neither {FOLDER}/ nor {archive.name}: fetch {ADDRESS} into it.")


def _required(tree: Tree, name: str) -> File:
    file = tree.file(name)
    if file is None:
        raise GcabError(f"Tiny ImageNet's {name} is missing: fetch {ADDRESS} again.")
    return file


def _images(tree: Tree, folder: str) -> dict[str, str]:
    return {name: stamp for name, stamp in tree.below(folder).items() if _is_image(name)}


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _train(tree: Tree, codes: Sequence[str]) -> Labelled:
    of_class = {code: _images(tree, f"train/{code}/images") for code in codes}
    empty = [code for code, images in of_class.items() if not images]
    if empty:
        raise GcabError(f"Tiny ImageNet has no training images of {listed(empty)}: fetch {ADDRESS} again.")
    _require_balance(tree, of_class)
    rows = [
        (f"train/{code}/images/{name}", stamp, label)
        for label, code in enumerate(codes)
        for name, stamp in of_class[code].items()
    ]
    return _columns(rows)


def _require_balance(tree: Tree, of_class: Mapping[str, Mapping[str, str]]) -> None:
    """Every class has equally many training images, in any part of the data set: fewer are a loss."""
    most = max(map(len, of_class.values()))
    for code, images in of_class.items():
        if len(images) < most:
            boxes = tree.file(f"train/{code}/{code}_boxes.txt")
            known = {line.split("\t")[0] for line in text_lines(boxes)} if boxes is not None else set()
            lost = {name for name in known - images.keys() if _is_image(name)}
            which = f" ({listed(lost)} missing)" if lost else ""
            raise GcabError(
                f"Tiny ImageNet has {len(images)} training images of {code}, but {most} of other classes{which}: "
                f"fetch {ADDRESS} again."
            )


def _validation(tree: Tree, codes: Sequence[str]) -> Labelled:
    images = _images(tree, "val/images")
    table = _required(tree, "val/val_annotations.txt")
    label_of = {code: label for label, code in enumerate(codes)}
    labelled: dict[str, int] = {}
    for number, line in enumerate(text_lines(table), start=1):
        name, code, *_ = [*line.split("\t"), "", ""]  # then the box, which is not used
        if name in labelled:
            problem = f"names {name} twice"
        elif name not in images:
            problem = f"names '{name}', which is not in val/images"
        elif code not in label_of:
            problem = f"gives class '{code}', which is not in wnids.txt"
        else:
            labelled[name] = label_of[code]
            continue
        raise GcabError(f"{table}, entry {number}, {problem}: correct it or fetch {ADDRESS} again.")
    missing = images.keys() - labelled.keys()
    if missing or not images:
        raise GcabError(f"{table} gives no class for {listed(missing) or 'any image'}: fetch {ADDRESS} again.")
    return _columns((f"val/images/{name}", images[name], label) for name, label in labelled.items())


def _columns(rows: Iterable[tuple[str, str, int]]) -> Labelled:
    names, stamps, labels = zip(*rows, strict=True)
    return list(names), list(stamps), list(labels)


def _class_names(codes: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """The first word WordNet gives each class, with its code where two classes share that word (crane, crane)."""
    wanted = set(codes)  # 200 of the 82,115 that words.txt has
    descriptions = dict(line.split("\t", 1) for line in words if "\t" in line and line[: line.index("\t")] in wanted)
    names = [descriptions.get(code, code).split(",")[0].strip() for code in codes]
    times = Counter(names)
    return tuple(name if times[name] == 1 else f"{name} ({code})" for name, code in zip(names, codes, strict=True))


DATASET = Dataset(
    name="tiny-imagenet",
    summary="Tiny ImageNet: 110,000 images of 64x64 pixels, from its folder or zip",
    needs="tiny-imagenet-200.zip (237 MB) or its unpacked folder; decoded images (1.4 GB) are kept beside it",
    address=ADDRESS,
    classes=200,
    size=64,
    load=load,
    tasks=(5, 10),
    order=ORDER,
    preset={"scenario.order": "paper", "encoder.patch": 8, **SHARP_EYE},
)
