"""Unpacking a zip of class folders from an untrusted client; nothing is written outside the target folder."""

import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gcab.data.archive import IMAGE_SUFFIXES
from gcab.serve.limits import Limits, RequestError, in_mebi, needing_room
from gcab.serve.photos import check_photo
from gcab.serve.wording import normalised, plain_name

BYTES_PER_ENTRY = 512  # of a zip's central directory, for each file that is allowed
SLACK = 2**20  # up to this size the compression ratio is not checked: images of one colour have a high one
METADATA = frozenset(("__macosx", "thumbs.db", "desktop.ini"))  # what operating systems add unasked
CHUNK = 2**16
PLAIN_FILE_OR_UNKNOWN = (0, stat.S_IFREG)


@dataclass(frozen=True)
class Photo:
    """One file of the zip and where it belongs."""

    info: zipfile.ZipInfo
    folders: tuple[str, ...]
    name: str


def unpack(file: IO[bytes], target: Path, limits: Limits) -> dict[Path, str]:
    """Write the photos to `target`/class/ and return the name that each had; raises `RequestError` for other zips."""
    names: dict[Path, str] = {}
    try:
        with needing_room(), zipfile.ZipFile(_Metered(file, limits.zip_files * BYTES_PER_ENTRY)) as archive:
            photos = _without_common_folder(list(_photos(archive, limits)))
            _check_classes(photos, limits)
            target.mkdir()
            budget = limits.zip_bytes
            for index, photo in enumerate(photos):
                folder = target / class_name(photo.folders[0], limits)
                folder.mkdir(exist_ok=True)  # not `target` again: a caller that gave up on the zip has removed it
                path = folder / f"{index:05d}{PurePosixPath(photo.name).suffix.lower()}"
                budget = _write(archive, photo, path, budget, limits)
                names[path] = f"{folder.name}/{plain_name(photo.name)}"
    except (
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        zlib.error,
        EOFError,
        RuntimeError,  # also of a kind of compression that is not known
    ) as problem:
        raise RequestError(422, "the zip is damaged or of an unknown kind: make it again.") from problem
    except (OSError, UnicodeError, ValueError, OverflowError, IndexError, KeyError) as problem:
        # zipfile on forged fields and offsets
        raise RequestError(422, "the zip is damaged: make it again.") from problem
    return names


class _Metered:
    """A file that refuses huge reads, as zipfile reads a zip's whole central directory at once."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._most = file, most

    def read(self, count: int = -1) -> bytes:
        if count > self._most:
            raise RequestError(413, "the zip has too many files: split it.")
        return self._file.read(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _photos(archive: zipfile.ZipFile, limits: Limits) -> Iterator[Photo]:
    """Every image, after the checks that need no unpacking."""
    entries = archive.infolist()
    if len(entries) > limits.zip_files:
        raise RequestError(413, f"the zip has more than {limits.zip_files} files: split it.")
    seen: set[str] = set()
    total = 0
    for info in entries:
        parts = checked_parts(info.orig_filename, limits)
        if normalised("/".join(parts)) in seen:
            raise RequestError(422, f"the zip holds '{plain_name(parts[-1])}' twice: keep one.")
        seen.add(normalised("/".join(parts)))
        if info.is_dir() or any(part.startswith(".") or part.lower() in METADATA for part in parts):
            continue
        _check_entry(info, parts[-1], limits)
        total += info.file_size
        if total > limits.zip_bytes:
            raise RequestError(413, f"the zip unpacks to more than {in_mebi(limits.zip_bytes)}: split it.")
        yield Photo(info, parts[:-1], parts[-1])


def checked_parts(name: str, limits: Limits) -> tuple[str, ...]:
    """The folders and the name of an entry; a name that could lead elsewhere on any system is refused."""
    parts = tuple(name.removesuffix("/").split("/"))
    leads_elsewhere = any(part in ("", ".", "..") for part in parts) or re.match("[A-Za-z]:", name)
    if leads_elsewhere or "\\" in name or not name.isprintable():
        raise RequestError(422, f"the zip holds a name that is not allowed ('{plain_name(name)}'): use plain folders.")
    if len(parts) > limits.zip_depth:
        raise RequestError(
            422, f"the zip has more than {limits.zip_depth} folders inside each other: use one per class."
        )
    return parts


def _check_entry(info: zipfile.ZipInfo, name: str, limits: Limits) -> None:
    label = plain_name(name)
    if stat.S_IFMT(info.external_attr >> 16) not in PLAIN_FILE_OR_UNKNOWN:
        raise RequestError(422, f"'{label}' in the zip is a link or a device: put the photo itself there.")
    if info.flag_bits & 0x1:
        raise RequestError(422, f"'{label}' in the zip is encrypted: make the zip without a password.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RequestError(
            422, f"'{label}' in the zip is packed in a way that is not read here: use plain zip (deflate)."
        )
    if PurePosixPath(name).suffix.lower() not in IMAGE_SUFFIXES:
        raise RequestError(422, f"'{label}' in the zip is no image: keep photos only.")
    if info.file_size > SLACK and info.file_size > limits.zip_ratio * max(1, info.compress_size):
        raise RequestError(
            413, f"'{label}' in the zip unpacks to more than {limits.zip_ratio} times its size: leave it out."
        )


def _without_common_folder(photos: list[Photo]) -> list[Photo]:
    """The zip of a folder `photos` holds `photos/robin/1.jpg`: the classes are then one level further in."""
    while photos and all(len(photo.folders) > 1 for photo in photos) and len({p.folders[0] for p in photos}) == 1:
        photos = [Photo(photo.info, photo.folders[1:], photo.name) for photo in photos]
    return photos


def _check_classes(photos: list[Photo], limits: Limits) -> None:
    if not photos:
        raise RequestError(422, "the zip holds no photos: put the photos of each class in a folder of its own.")
    if any(not photo.folders for photo in photos):
        raise RequestError(422, "the zip holds photos outside any class folder: put each in the folder of its class.")
    names = {class_name(photo.folders[0], limits) for photo in photos}
    if len({normalised(name) for name in names}) < len(names):
        raise RequestError(
            422, "two class folders of the zip differ only in capitals or accents: use one name for both."
        )


def class_name(folder: str, limits: Limits) -> str:
    """A folder's name as the name of a class: plain text, composed, without surrounding blanks."""
    name = unicodedata.normalize("NFC", folder).strip()
    if not name or name.startswith(".") or not name.isprintable() or len(name) > limits.name_characters:
        raise RequestError(
            422, f"'{plain_name(folder)}' cannot name a class: use up to {limits.name_characters} letters."
        )
    if len(name.encode()) > 255:  # what file systems allow
        raise RequestError(422, f"'{plain_name(folder)[:20]}...' is too long to name a class: use a shorter name.")
    return name


def _write(archive: zipfile.ZipFile, photo: Photo, path: Path, budget: int, limits: Limits) -> int:
    """Unpack one file and return the bytes that may still come; what a header claims is not believed."""
    with archive.open(photo.info) as packed, path.open("xb") as unpacked:
        while chunk := packed.read(CHUNK):
            budget -= len(chunk)
            if budget < 0:
                raise RequestError(413, f"the zip unpacks to more than {in_mebi(limits.zip_bytes)}: split it.")
            unpacked.write(chunk)
    with path.open("rb") as photo_file:
        check_photo(photo_file, plain_name(photo.name), limits)
    return budget
