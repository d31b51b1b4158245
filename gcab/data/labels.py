"""The classes of photos from a table beside them: file,label, a line for each photo."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gcab.data.archive import LeftOut, existing_folder, image_files
from gcab.errors import GcabError

MARKS = ",;\t"  # between a file and its label, as spreadsheets of different countries write them
HEADS = frozenset(("file", "filename", "path", "photo", "image"))  # what the first column may be called


def require_folder(photos: Path, table: Path | None = None) -> None:
    """Raise an error if there is no folder of photos."""
    if not photos.is_dir():
        told = "of photos" if table else "with a subfolder of photos for each class"
        wrong = f"'{photos}' is no folder" if photos.exists() else f"there is no folder '{photos}'"
        raise GcabError(f"{wrong}: name one {told}.")


def labelled_by(table: Path, photos: Path) -> tuple[list[Path], list[str]]:
    """Every photo that the table names and its class, in the table's order; files are looked for below `photos`.

    Photos of the folder that the table does not name are left out, with one warning.
    """
    folder, found, first = existing_folder(photos, "folder"), dict[Path, str](), dict[Path, int]()
    for number, name, label in _lines(table):
        where = f"{table}, line {number},"
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise GcabError(f"{where} names '{name}': give a file below '{photos}'.")
        path = folder / name
        if not path.is_file():
            raise GcabError(f"{where} names '{name}', which is no file in '{photos}': correct or remove the line.")
        if path in found:
            raise GcabError(f"{where} names '{name}' again, as line {first[path]} does: keep one of them.")
        found[path], first[path] = label, number
    if not found:
        raise GcabError(f"{table} names no photo: write a line file,label for each.")
    _tell_unnamed(folder, {os.path.realpath(path) for path in found})
    return list(found), list(found.values())


def _tell_unnamed(folder: Path, named: set[str]) -> None:
    ignored, unnamed = LeftOut(), LeftOut()
    for path in image_files(folder, ignored):
        if os.path.realpath(path) not in named:
            unnamed.add(path.relative_to(folder).as_posix())
    unnamed.tell("which the table does not name")


def _lines(table: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, file and label of every line, but for a head and empty ones."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            stream.seek(0)
            reader = csv.reader(stream, strict=True, delimiter=next((mark for mark in MARKS if mark in first), ","))
            for cells in reader:
                values = [cell.strip() for cell in cells]
                if not any(values) or (reader.line_num == 1 and values[0].lower() in HEADS):
                    continue
                if len(values) != 2 or not all(values):
                    raise GcabError(f"{table}, line {reader.line_num}, is not file,label: give both, and no more.")
                yield reader.line_num, values[0], values[1]
    except FileNotFoundError:
        raise GcabError(f"there is no table '{table}': name a CSV file of file,label.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise GcabError(f"{table} cannot be read as a CSV table ({problem}): save it as UTF-8 CSV.") from problem
