"""Anyone's own images: one folder per class, or a CSV table of path and label.

A folder with `train` and `test` (or `val`, `validation`, ...) inside is used as divided, as torchvision and Hugging
Face lay them out; a table may divide by a third column. Otherwise one image in five of each class is the test split,
chosen by its relative path, so every machine chooses the same. Many images are decoded once (gcab/data/cache.py).
"""

import csv
import hashlib
import logging
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from gcab.data.archive import (
    LeftOut,
    cannot_open,
    existing_folder,
    given_root,
    image_files,
    is_hidden,
    listed,
    looks_like_image,
)
from gcab.data.cache import FOLDER as CACHE
from gcab.data.cache import decoded, fingerprint, stamps
from gcab.data.dataset import Dataset
from gcab.data.decode import image_set
from gcab.data.decoders import MANY
from gcab.data.images import ImageSet, Split
from gcab.data.layout import require_classes
from gcab.errors import GcabError
from gcab.sizes import Size, size_name

TO_LEARN = ("train", "training")  # folders, in the order they are looked for; Hugging Face's names, too
FOR_TESTS = ("test", "testing", "eval", "evaluation", "val", "validation", "valid", "dev")
COLUMNS = ("path", "label", "split")
FILE_NAME = "file_name"  # what Hugging Face calls the first of them
TEST_SHARE = 5  # one image in five

Classes = dict[str, list[Path]]  # class name -> its images
Divided = dict[Split, Classes]


def load(root: Path | None, split: Split, size: Size) -> ImageSet:
    """Read one split; classes are sorted by name and the same for both splits."""
    place = given_root(root, "folder")
    is_table = place.is_file() and place.suffix.lower() == ".csv"
    told = split == "test"  # what is left out was told with the training images
    divided = _from_table(place) if is_table else _from_folder(existing_folder(place, "folder"), quiet=told)
    one_sided = divided["train"].keys() ^ divided["test"].keys()
    if one_sided:
        raise GcabError(f"'{place}' lacks training or test images of {listed(one_sided)}: add some of both.")
    classes = tuple(sorted(divided[split]))
    labelled = [(file, label) for label, name in enumerate(classes) for file in divided[split][name]]
    if len(labelled) < MANY:
        return image_set(labelled, classes, size)
    files, root = [file for file, _ in labelled], place.parent if is_table else place
    images = decoded(files, size, f"{split}-{size_name(size)}-{fingerprint(stamps(root, files))}", root)
    return ImageSet(images, torch.tensor([label for _, label in labelled], dtype=torch.int64), classes)


def labelled_files(root: Path) -> tuple[list[Path], list[str]]:
    """Every image of a folder with a subfolder per class, and the name of its class; of a divided one, of `train`."""
    classes = _class_folders(_to_learn_from(existing_folder(root, "folder")))
    pairs = [(file, name) for name in sorted(classes) for file in classes[name]]
    return [file for file, _ in pairs], [name for _, name in pairs]


def class_files(root: Path, name: str) -> list[Path]:
    """Every image of a class, in a folder of its own or in the subfolder of its name."""
    folder = existing_folder(root, "folder")
    own = [entry for entry in sorted(folder.iterdir()) if entry.is_dir() and as_read(entry.name) == as_read(name)]
    left_out = LeftOut()
    files = image_files(own[0] if own else folder, left_out)
    left_out.tell()
    if not files:
        raise GcabError(f"'{folder}' has no images: name the folder with those of '{name}'.")
    return files


def _from_folder(root: Path, quiet: bool) -> Divided:
    train = next((root / name for name in TO_LEARN if (root / name).is_dir()), None)
    others = [root / name for name in FOR_TESTS if (root / name).is_dir()]
    if train is None or not others:
        return _divide(_class_folders(root, quiet), root)
    # A test folder without class folders holds unlabelled images, as of a competition: validation takes its place.
    labelled = [folder for folder in others if _folder_names(folder) & _folder_names(train)] or others
    return {"train": _class_folders(train, quiet), "test": _class_folders(labelled[0], quiet)}


def _to_learn_from(root: Path) -> Path:
    """The folder itself, or `train` in it where its other folders are for tests."""
    names = _folder_names(root)
    train = [name for name in TO_LEARN if name in names]
    if len(train) != 1 or len(names) < 2 or not names <= {*train, *FOR_TESTS}:
        return root
    others = listed([f"{name}/" for name in names - {*train}])
    if not _folder_names(root / train[0]):
        raise GcabError(
            f"'{root}' holds {train[0]}/ and {others} without class folders in them: put the images of each class in a "
            "folder of its own."
        )
    logging.getLogger("gcab.data").warning(f"the photos of '{root}' are taken from {train[0]}/; {others} left out.")
    return root / train[0]


def _folder_names(folder: Path) -> set[str]:
    return {entry.name for entry in _entries(folder) if entry.is_dir() and not is_hidden(entry.name)}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as problem:
        cannot_open(problem)


def _class_folders(folder: Path, quiet: bool = False) -> Classes:
    entries, left_out = _entries(folder), LeftOut()
    visible = [entry for entry in entries if not is_hidden(entry.name)]
    loose = [entry.name for entry in visible if entry.is_file() and looks_like_image(entry)]
    for entry in entries:
        if entry.name != CACHE and (is_hidden(entry.name) or (not entry.is_dir() and entry.name not in loose)):
            left_out.add(entry.name)
    if loose:
        raise GcabError(f"'{folder}' holds images outside any class folder ({listed(loose)}): move them into one.")
    folders = [entry for entry in visible if entry.is_dir()]
    if not folders:
        raise GcabError(f"'{folder}' has no class folders: put the images of each class in a folder of its own.")
    _check_names(folder, [entry.name for entry in folders])
    classes = {entry.name: image_files(entry, left_out) for entry in folders}
    if not quiet:
        left_out.tell()
    empty = [name for name, images in classes.items() if not images]
    if empty:
        where = f"class folder{'s' * (len(empty) > 1)} {listed(empty)}"
        raise GcabError(f"'{folder}' has no images in the {where}: add some or remove them.")
    require_classes(folder, classes)
    return classes


def _check_names(folder: Path, names: Sequence[str]) -> None:
    """Class names must be UTF-8 and distinct in the eyes of a reader."""
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
    """A name in canonical form: NFC, without surrounding blanks."""
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
                titles = [COLUMNS[0] if title.lower() == FILE_NAME else title.lower() for title in stripped]
                header = reader.line_num == 1 and titles in ([*COLUMNS], [*COLUMNS[:2]])
                if stripped and not header:
                    yield reader.line_num, stripped
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise GcabError(f"{table} cannot be read as a CSV table ({problem}): save it as UTF-8 CSV.") from problem


DATASET = Dataset(
    name="folder",
    summary="your own images: one folder per class, or a CSV table of path,label",
    needs="a folder per class, in DIR, or in DIR/train and DIR/test (val, validation, ...); or --data TABLE.csv",
    classes=None,
    size=64,
    load=load,
    preset={"encoder.patch": 8},
)
