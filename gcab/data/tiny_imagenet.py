"""Tiny ImageNet: 200 classes of 64x64 images, from its folder or straight from its zip; the test split is `val`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from gcab.data.archive import IMAGE_SUFFIXES, File, existing_folder, listed, open_files, text_lines
from gcab.data.dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset
from gcab.data.decode import image_set
from gcab.data.images import ImageSet, Split
from gcab.errors import GcabError

FOLDER = "tiny-imagenet-200"
ADDRESS = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"


def load(root: Path | None, split: Split, size: int, count: int = 200) -> ImageSet:
    """Read one split; labels follow the order of wnids.txt."""
    with open_files(_place(existing_folder(root, "tiny-imagenet"))) as found:
        files = {name.removeprefix(f"{FOLDER}/"): file for name, file in found.items()}
        codes = text_lines(_required(files, "wnids.txt"))
        if len(codes) != count or len(set(codes)) != count:
            raise GcabError(f"{files['wnids.txt']} must name {count} different classes: fetch the data again.")
        labelled = _train(files, codes) if split == "train" else _validation(files, codes)
        return image_set(labelled, _class_names(codes, text_lines(_required(files, "words.txt"))), size)


def _place(root: Path) -> Path:
    for candidate in (root / FOLDER, root):
        if (candidate / "wnids.txt").is_file():
            return candidate
    archive = root / f"{FOLDER}.zip"
    if archive.is_file():
        return archive
    raise GcabError(f"'{root}' holds neither {FOLDER}/ nor {archive.name}: fetch {ADDRESS} into it.")


def _required(files: Mapping[str, File], name: str) -> File:
    if name not in files:
        raise GcabError(f"Tiny ImageNet's {name} is missing: fetch {ADDRESS} again.")
    return files[name]


def _images(files: Mapping[str, File], folder: str) -> dict[str, File]:
    below = {name.removeprefix(folder): file for name, file in files.items() if name.startswith(folder)}
    return {name: below[name] for name in sorted(below) if Path(name).suffix.lower() in IMAGE_SUFFIXES}


def _train(files: Mapping[str, File], codes: Sequence[str]) -> list[tuple[File, int]]:
    of_class: dict[str, list[File]] = {code: [] for code in codes}
    for name, file in _images(files, "train/").items():  # <code>/images/<name>.JPEG
        code, *middle, _ = name.split("/")
        if middle == ["images"] and code in of_class:
            of_class[code].append(file)
    empty = [code for code, images in of_class.items() if not images]
    if empty:
        raise GcabError(f"Tiny ImageNet has no training images of {listed(empty)}: fetch {ADDRESS} again.")
    return [(file, label) for label, code in enumerate(codes) for file in of_class[code]]


def _validation(files: Mapping[str, File], codes: Sequence[str]) -> list[tuple[File, int]]:
    images = _images(files, "val/images/")
    table = _required(files, "val/val_annotations.txt")
    label_of = {code: label for label, code in enumerate(codes)}
    labelled: dict[str, tuple[File, int]] = {}
    for number, line in enumerate(text_lines(table), start=1):
        name, code, *_ = [*line.split("\t"), "", ""]  # then the box, which is not used
        if name in labelled:
            problem = f"names {name} twice"
        elif name not in images:
            problem = f"names '{name}', which is not in val/images"
        elif code not in label_of:
            problem = f"gives class '{code}', which is not in wnids.txt"
        else:
            labelled[name] = (images[name], label_of[code])
            continue
        raise GcabError(f"{table}, entry {number}, {problem}: correct it or fetch {ADDRESS} again.")
    missing = images.keys() - labelled.keys()
    if missing or not images:
        raise GcabError(f"{table} gives no class for {listed(missing) or 'any image'}: fetch {ADDRESS} again.")
    return list(labelled.values())


def _class_names(codes: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """The first word WordNet gives each class, with its code where two classes share that word (crane, crane)."""
    descriptions = dict(line.split("\t", 1) for line in words if "\t" in line)
    names = [descriptions.get(code, code).split(",")[0].strip() for code in codes]
    times = Counter(names)
    return tuple(name if times[name] == 1 else f"{name} ({code})" for name, code in zip(names, codes, strict=True))


DATASET = Dataset(
    name="tiny-imagenet",
    summary="Tiny ImageNet: 110,000 images of 64x64 pixels, from its folder or zip",
    classes=200,
    size=64,
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
    crop="resized",
    flip=True,
    needs_root=True,
    load=load,
    tasks=(5, 10),
    preset={"encoder.patch": 8},
)
