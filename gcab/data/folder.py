"""Anyone's own images: one folder per class, or a CSV table of path and label.

A folder with `train` and `test` (or `val`) inside is used as divided; a table may divide by a third column. Otherwise
one image in five of each class is the test split, chosen by its relative path, so every machine chooses the same.
"""

import csv
import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from gcab.data.archive import IMAGE_SUFFIXES, cannot_open, existing_folder, given_root, image_files, listed
from gcab.data.dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset
from gcab.data.decode import image_set
from gcab.data.images import ImageSet, Split
from gcab.errors import GcabError

COLUMNS = ("path", "label", "split")
TEST_SHARE = 5  # one image in five

Classes = dict[str, list[Path]]  # class name -> its images
Divided = dict[Split, Classes]


def load(root: Path | None, split: Split, size: int) -> ImageSet:
    """Read one split; classes are sorted by name and the same for both splits."""
    place = given_root(root, "folder")
    is_table = place.is_file() and place.suffix.lower() == ".csv"
    divided = _from_table(place) if is_table else _from_folder(existing_folder(place, "folder"))
    one_sided = divided["train"].keys() ^ divided["test"].keys()
    if one_sided:
        raise GcabError(f"'{place}' lacks training or test images of {listed(one_sided)}: add some of both.")
    classes = tuple(sorted(divided[split]))
    labelled = [(file, label) for label, name in enumerate(classes) for file in divided[split][name]]
    return image_set(labelled, classes, size)


def labelled_files(root: Path) -> tuple[list[Path], list[str]]:
    """Every image of a folder with a subfolder per class, and the name of its class."""
    classes = _class_folders(existing_folder(root, "folder"))
    pairs = [(file, name) for name in sorted(classes) for file in classes[name]]
    return [file for file, _ in pairs], [name for _, name in pairs]


def class_files(root: Path, name: str) -> list[Path]:
    """Every image of a class, in a folder of its own or in the subfolder of its name."""
    folder = existing_folder(root, "folder")
    own = [entry for entry in sorted(folder.iterdir()) if entry.is_dir() and as_read(entry.name) == as_read(name)]
    files = image_files(own[0] if own else folder)
    if not files:
        raise GcabError(f"'{folder}' has no images: name the folder with those of '{name}'.")
    return files


def _from_folder(root: Path) -> Divided:
    test = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if test is not None and (root / "train").is_dir():
        return {"train": _class_folders(root / "train"), "test": _class_folders(test)}
    return _divide(_class_folders(root), root)


def _class_folders(folder: Path) -> Classes:
    try:
        visible = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as problem:
        cannot_open(problem)
    loose = [entry.name for entry in visible if entry.is_file() and entry.suffix.lower() in IMAGE_SUFFIXES]
    if loose:
        raise GcabError(f"'{folder}' holds images outside any class folder ({listed(loose)}): move them into one.")
    folders = [entry for entry in visible if entry.is_dir()]
    if not folders:
        raise GcabError(f"'{folder}' has no class folders: put the images of each class in a folder of its own.")
    _check_names(folder, [entry.name for entry in folders])
    classes = {entry.name: image_files(entry) for entry in folders}
    empty = [name for name, images in classes.items() if not images]
    if empty:
        raise GcabError(f"'{folder}' has no images in the class folders {listed(empty)}: add some or remove them.")
    return classes


def _check_names(folder: Path, names: Sequence[str]) -> None:
    """A class must be nameable on a page and in a file, and look like no other."""
    first: dict[str, str] = {}
    for name in names:
        if name != name.encode(errors="replace").decode():
            raise GcabError(f"the class folder {name!r} in '{folder}' has a name that is not UTF-8: rename it.")
        other = first.setdefault(as_read(name), name)
        if other != name:
            raise GcabError(
                f"the class folders {other!r} and {name!r} in '{folder}' read the same (blanks at an end, or accents "
                "encoded otherwise): rename one, or put their images together."
            )


def as_read(name: str) -> str:
    """Two names that a person reads as one are one."""
    return unicodedata.normalize("NFC", name.strip())


def _divide(classes: Classes, root: Path) -> Divided:
    single = [name for name, images in classes.items() if len(images) < 2]
    if single:
        raise GcabError(f"'{root}' has one image only of {listed(single)}: training and testing need one each.")
    divided: Divided = {"train": {}, "test": {}}
    for name, images in classes.items():
        # A hash shuffles the same way everywhere; a plain order would test on the last of a series of photos.
        ranked = sorted(images, key=lambda path: hashlib.sha256(_relative(path, root).encode()).digest())
        chosen = set(ranked[: max(1, round(len(ranked) / TEST_SHARE))])
        divided["train"][name] = [path for path in images if path not in chosen]
        divided["test"][name] = [path for path in images if path in chosen]
    return divided


def _relative(path: Path, root: Path) -> str:
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _from_table(table: Path) -> Divided:
    everything: Classes = defaultdict(list)
    divided: Divided = {"train": defaultdict(list), "test": defaultdict(list)}
    seen: set[Path] = set()
    width = 0
    for number, cells in _rows(table):
        where = f"{table}, line {number},"
        width = width or len(cells)
        if len(cells) != width or width not in (2, 3):
            raise GcabError(f"{where} has {len(cells)} columns: every line needs path,label or path,label,split.")
        path = table.parent / cells[0]
        if not cells[0] or not path.is_file():
            raise GcabError(f"{where} names '{cells[0]}', which is no file: paths start at the table's folder.")
        if path in seen:
            raise GcabError(f"{where} names '{cells[0]}' a second time: keep one.")
        if not cells[1]:
            raise GcabError(f"{where} has no label: write one after the path.")
        seen.add(path)
        everything[cells[1]].append(path)
        if width == 3:
            if cells[2] not in ("train", "test"):
                raise GcabError(f"{where} has split '{cells[2]}': write train or test.")
            divided["train" if cells[2] == "train" else "test"][cells[1]].append(path)
    if not everything:
        raise GcabError(f"{table} names no images: write one line path,label for each.")
    return divided if width == 3 else _divide(everything, table.parent)


def _rows(table: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for cells in reader:
                stripped = [cell.strip() for cell in cells]
                header = reader.line_num == 1 and tuple(map(str.lower, stripped)) in (COLUMNS, COLUMNS[:2])
                if stripped and not header:
                    yield reader.line_num, stripped
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise GcabError(f"{table} cannot be read as a CSV table ({problem}): save it as UTF-8 CSV.") from problem


DATASET = Dataset(
    name="folder",
    summary="your own images: one folder per class, or a CSV table of path,label",
    classes=None,
    size=64,
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
    crop="resized",
    flip=True,
    needs_root=True,
    load=load,
    preset={"encoder.patch": 8},
)
