"""Finding the images that a user names: files, folders, patterns, and what comes through standard input.

Everything is found lazily, so that a folder of a million photos takes no longer to begin with than one.
"""

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from gcab.data.archive import LeftOut, is_hidden, looks_like_image
from gcab.errors import GcabError

STANDARD_INPUT = "-"
LARGEST_INPUT = 256 * 2**20  # bytes of one image through standard input
CHUNK = 2**16
# How pictures begin: PNG, JPEG, GIF, WEBP, TIFF (also its 64-bit kind), AVIF and HEIC, BMP, PPM.
# A path in a list may begin with the few letters of GIF or PPM, so their sizes count too: a GIF with 8192 pixels each
# way is too large anyway, and a PPM has nothing but two or more numbers and comments up to the end of a line.
SIGNATURES = re.compile(
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a(?:.|.{3})[\0-\x1f]|RIFF.{4}WEBP|II[*+]\0|MM\0[*+]|\0\0.{2}ftyp|BM.{4}\0\0\0\0"
    rb"|P[1-6]\s(?:\s|#[^\n]*\n)*\d+\s+\d[\s\d]*[\n#]",
    flags=re.DOTALL,
)


@dataclass(frozen=True)
class Photo:
    """An image by its name and where its bytes are, or the reason why there are none."""

    name: str
    source: Path | bytes | GcabError


def find_photos(
    places: Iterable[str | Path], standard_input: IO[bytes] | None = None, left_out: LeftOut | None = None
) -> Iterator[Photo]:
    """Every image of the places, in their order; a place without any gives an error with its reason.

    Files of folders that are no images are noted in `left_out`.
    """
    left_out = left_out or LeftOut()
    for place in places:
        if place == STANDARD_INPUT and standard_input is not None:
            yield from _from_stream(standard_input, left_out)
        elif place == "":
            yield _problem(place, "an empty name was given: name a file, a folder or a pattern.")
        elif isinstance(place, str) and glob.has_magic(place) and not os.path.lexists(place):
            yield from _matching(place, left_out)
        else:
            yield from _at(Path(place), left_out)


def _at(path: Path, left_out: LeftOut) -> Iterator[Photo]:
    """A file as it was named, or the images of a folder."""
    if not _is_folder(path):
        yield Photo(str(path), path)
        return
    nothing = True
    for photo in _below(path, set(), left_out):
        nothing = False
        yield photo
    if nothing:
        yield _problem(path, f"'{path}' holds no images: check the folder.")


def _below(folder: Path, seen: set[Path], left_out: LeftOut) -> Iterator[Photo]:
    """Images of a folder and of those inside it by name; hidden ones and other files are noted and passed over.

    A file whose name does not tell is an image if it begins like one. Links to folders are followed, but no folder is
    gone through twice: one could lead back here.
    """
    names: list[str] = []  # no more than names is kept: there may be a million
    folders: set[str] = set()
    try:
        real = folder.resolve()
        if real in seen:
            return
        seen.add(real)
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    left_out.add(entry.path)
                elif entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and _is_folder(entry)):
                    folders.add(entry.name)
                elif looks_like_image(Path(entry.path)):
                    names.append(entry.name)
                else:
                    left_out.add(entry.path)
    except OSError as problem:
        yield _problem(folder, f"'{folder}' cannot be opened ({problem.strerror}): check the folder.")
        return
    for name in sorted([*names, *folders]):
        path = folder / name
        if name in folders:
            yield from _below(path, seen, left_out)
        else:
            yield Photo(str(path), path)


def _is_folder(path: "os.PathLike[str]") -> bool:
    """Whether this is a folder; False on errors (too long a name, a locked parent), which opening it reports."""
    return os.path.isdir(path)  # noqa: PTH112 - Path's would raise


def _matching(pattern: str, left_out: LeftOut) -> Iterator[Photo]:
    """Expand a pattern as a shell would, in a fixed order; ** matches all folders."""
    found = sorted({Path(name) for name in glob.glob(pattern, recursive=True)})  # noqa: PTH207 - Path's ** has no files
    if not found:
        yield _problem(pattern, f"nothing matches '{pattern}': check the pattern.")
    matched_inside = {path.parent for path in found}
    for path in found:
        if path not in matched_inside:  # else ** gave the folder's images already
            yield from _at(path, left_out)


def _from_stream(stream: IO[bytes], left_out: LeftOut) -> Iterator[Photo]:
    """One image's bytes if they begin like an image, else paths: one a line, or with a zero byte after each."""
    head = stream.read(CHUNK)
    if not head.strip():
        yield _problem(STANDARD_INPUT, "nothing came through standard input: pipe an image or a list of paths to it.")
    elif SIGNATURES.match(head):
        content = head + stream.read(LARGEST_INPUT)
        too_large = GcabError(f"standard input has more than {LARGEST_INPUT >> 20} MiB: give the image as a file.")
        yield Photo(STANDARD_INPUT, content if len(content) <= LARGEST_INPUT else too_large)
    else:
        separator = b"\0" if b"\0" in head else b"\n"
        for line in _lines(chain([head], iter(lambda: stream.read(CHUNK), b"")), separator):
            name = os.fsdecode(line.removesuffix(b"\r") if separator == b"\n" else line)
            if name:
                yield from _at(Path(name), left_out)


def _lines(chunks: Iterable[bytes], separator: bytes) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(separator)
        yield from lines
    yield rest


def _problem(place: str | Path, sentence: str) -> Photo:
    return Photo(str(place), GcabError(sentence))
