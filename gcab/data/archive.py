"""Files as they come to a data set: in a folder, in a zip or tar archive, or from an address on the net."""

import hashlib
import io
import logging
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NoReturn, Protocol

from gcab.data.formats import LONGEST_SIGNATURE, SUFFIXES, kind_of
from gcab.errors import GcabError
from gcab.terminal import visible

IMAGE_SUFFIXES = frozenset(SUFFIXES)
SYSTEM_FILES = frozenset(("thumbs.db", "desktop.ini", "__macosx"))  # what operating systems add to folders
LARGEST_MEMBER = 256 * 2**20  # a zip member that claims more than this is no image


class File(Protocol):
    """A file that can be read, a path or a zip member; str() names it."""

    def open(self, mode: Literal["rb"], /) -> IO[bytes]: ...


@dataclass(frozen=True)
class ZipMember:
    """One file inside a zip, read in memory and never written to disk."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo

    def __str__(self) -> str:
        return f"{self.archive.filename}:{self.info.filename}"

    def open(self, mode: Literal["rb"], /) -> IO[bytes]:  # noqa: ARG002
        if self.info.file_size > LARGEST_MEMBER:
            raise GcabError(f"{self} claims {self.info.file_size} bytes, too many for one file of a data set.")
        try:
            return io.BytesIO(self.archive.read(self.info))
        except (EOFError, zipfile.BadZipFile, zlib.error) as problem:  # whose message may contain the damaged bytes
            raise GcabError(f"{self} is damaged: fetch the archive again.") from problem
        except (OSError, RuntimeError) as problem:
            raise GcabError(f"{self} cannot be read ({problem}): fetch the archive again.") from problem


def listed(names: Collection[str], shown: int = 5) -> str:
    """A few names and how many more there are, so that a sentence stays one sentence."""
    ordered = sorted(names)
    more = f" and {len(ordered) - shown} more" if len(ordered) > shown else ""
    return ", ".join(ordered[:shown]) + more


def given_root(root: Path | None, dataset: str) -> Path:
    """The place the user named, or the sentence that asks for one."""
    if root is None:
        raise GcabError(f"data set '{dataset}' needs the folder that holds its files: name it as the root.")
    return root


def existing_folder(root: Path | None, dataset: str) -> Path:
    """The data set's folder, or the sentence that says why it is none."""
    folder = given_root(root, dataset)
    if not folder.exists():
        raise GcabError(f"the root '{folder}' of data set '{dataset}' does not exist: check the path.")
    if not folder.is_dir():
        raise GcabError(f"the root '{folder}' of data set '{dataset}' is a file: name the folder instead.")
    return folder


class LeftOut:
    """Files that are skipped as no images: counts them and keeps a few names for a warning."""

    def __init__(self, shown: int = 5) -> None:
        self.count, self.shown = 0, shown
        self.names: list[str] = []

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.names) < self.shown:
            self.names.append(name)

    def tell(self, reason: str = "as no images or hidden") -> None:
        """Log a warning, which is shown by default."""
        if self.count:
            logging.getLogger("gcab.data").warning(self.sentence(reason))

    def sentence(self, reason: str = "as no images or hidden") -> str:
        more = f" and {self.count - self.shown} more" if self.count > self.shown else ""
        files = f"{self.count} file{'s' * (self.count != 1)}"
        return visible(f"{files} left out, {reason}: {', '.join(sorted(self.names))}{more}.")


def looks_like_image(path: Path) -> bool:
    """Whether suffix or signature are those of an image; a file that cannot be opened counts as one."""
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return kind_of(stream.read(LONGEST_SIGNATURE)) is not None
    except OSError:
        return True


def image_files(folder: Path, left_out: LeftOut) -> list[Path]:
    """Every image below a folder in a fixed order; hidden files and those that are no images are noted as left out.

    A folder that cannot be opened is an error, as its images would be missing unnoticed.
    """
    found: dict[str, Path] = {}
    for place, inside, names in os.walk(folder, onerror=cannot_open):
        for name in [name for name in (*inside, *names) if is_hidden(name)]:
            left_out.add(str(Path(place, name).relative_to(folder.parent)))
        inside[:] = [name for name in inside if not is_hidden(name)]
        for path in [Path(place, name) for name in sorted(names) if not is_hidden(name)]:
            if looks_like_image(path):
                found[path.relative_to(folder).as_posix()] = path
            else:
                left_out.add(str(path.relative_to(folder.parent)))
    return [found[name] for name in sorted(found)]


def cannot_open(problem: OSError) -> NoReturn:
    """The error for a folder without read permission."""
    raise GcabError(
        f"'{problem.filename}' cannot be opened ({problem.strerror}): make it readable or remove it."
    ) from problem


def text_lines(file: File) -> list[str]:
    """The non-empty lines of a small text file, without surrounding blanks."""
    with file.open("rb") as stream:
        content = stream.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise GcabError(f"{file} is not UTF-8 text: save it as UTF-8.") from problem
    return [line.strip() for line in text.splitlines() if line.strip()]


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A context manager for an atomic write: the temporary file replaces the target when the block succeeds."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def md5_of(path: Path) -> str:
    """The MD5 checksum of a published file: it detects damage and is no protection against an attacker."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download(url: str, target: Path, md5: str) -> None:
    """Download a published file, check its MD5 and write it atomically."""
    from urllib.request import urlopen

    by_hand = f"fetch {url} elsewhere and put it in '{target.parent}'"
    try:
        with urlopen(url, timeout=30) as response:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as partial:
                with partial.open("wb") as stream:
                    shutil.copyfileobj(response, stream, 2**20)
                if md5_of(partial) != md5:
                    raise GcabError(f"{url} arrived damaged (its md5 is not {md5}): try again, or {by_hand}.")
    except (OSError, HTTPException) as problem:
        raise GcabError(f"{target.name} is not there and cannot be fetched ({problem}): {by_hand}.") from problem


def unpack(archive: Path, members: Mapping[str, Path]) -> None:
    """Write exactly the named plain files of a gzipped tar to the given paths, whatever else it holds."""
    missing = set(members)
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.name in missing and member.isreg() else None
                if content is None:
                    continue
                target = members[member.name]
                target.parent.mkdir(parents=True, exist_ok=True)
                with replacing(target) as partial, partial.open("wb") as stream:
                    shutil.copyfileobj(content, stream, 2**20)
                missing.remove(member.name)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as problem:
        raise GcabError(f"{archive} cannot be unpacked ({problem}): fetch it again.") from problem
    if missing:
        raise GcabError(f"{archive} lacks {listed(missing)}: fetch it again.")


def is_hidden(name: str) -> bool:
    """Whether a name is hidden, or a file that an operating system adds to folders."""
    parts = PurePosixPath(name).parts
    return any(part.startswith(".") or part.lower() in SYSTEM_FILES for part in parts)
