"""The files of a data set in a folder or a zip, listed by the hundred thousand without a `Path` for each."""

import gc
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self, overload

from gcab.data.archive import File, ZipMember
from gcab.errors import GcabError


class Tree(Protocol):
    """Interface of a place with a data set's files; names are relative to it, with slashes."""

    def below(self, folder: str) -> dict[str, str]:
        """Visible files directly in a folder, sorted, each with a stamp that changes when the file does."""

    def file(self, name: str) -> File | None:
        """The file of this name; None where there is none."""


class FolderTree:
    """A folder on disk; a stamp is the size and the time of a file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def below(self, folder: str) -> dict[str, str]:
        found: dict[str, str] = {}
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    if not entry.name.startswith(".") and entry.is_file():
                        about = entry.stat()
                        found[entry.name] = f"{about.st_size}\0{about.st_mtime_ns}"
        except FileNotFoundError:
            return {}
        except OSError as problem:
            raise GcabError(f"'{problem.filename}' cannot be opened ({problem.strerror}): make it readable.") from None
        return {name: found[name] for name in sorted(found)}

    def file(self, name: str) -> File | None:
        path = self.root / name
        return path if path.is_file() else None


class ZipTree:
    """A zip, read where it is; a stamp is the size and the checksum of a member. `top` is left out of all names."""

    def __init__(self, archive: zipfile.ZipFile, top: str) -> None:
        self.archive, self.top = archive, top
        self.folders: dict[str, dict[str, zipfile.ZipInfo]] = defaultdict(dict)
        for info in archive.infolist():
            if info.filename.startswith("/") or "\\" in info.filename or "/../" in f"/{info.filename}/":
                raise GcabError(
                    f"{archive.filename} holds '{info.filename}', which leads out of it: fetch it from a trusted place."
                )
            folder, _, name = info.filename.removeprefix(f"{top}/").rpartition("/")
            if name and not name.startswith("."):
                self.folders[folder][name] = info

    def below(self, folder: str) -> dict[str, str]:
        found = self.folders.get(folder, {})
        return {name: f"{found[name].file_size}\0{found[name].CRC}" for name in sorted(found)}

    def file(self, name: str) -> File | None:
        folder, _, last = name.rpartition("/")
        info = self.folders.get(folder, {}).get(last)
        return None if info is None else ZipMember(self.archive, info)


@contextmanager
def open_tree(place: Path, top: str) -> Iterator[Tree]:
    """The files of a folder, or of a zip whose names begin with `top`."""
    if place.is_dir():
        yield FolderTree(place)
        return
    try:
        archive = zipfile.ZipFile(place)
    except (OSError, zipfile.BadZipFile) as problem:
        raise GcabError(f"{place} is not a readable zip ({problem}): fetch it again.") from problem
    with archive:
        yield ZipTree(archive, top)


@contextmanager
def no_collecting() -> Iterator[None]:
    """Disable garbage collection, which takes a quarter of the time while listing a hundred thousand files."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class LazyFiles(Sequence[File]):
    """The files of these names; a zip is opened only when one is asked for: a run that finds a cache asks for none."""

    def __init__(self, place: Path, top: str, names: Sequence[str]) -> None:
        self.place, self.top, self.names = place, top, names
        self.opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> File: ...

    @overload
    def __getitem__(self, index: slice) -> list[File]: ...

    def __getitem__(self, index: int | slice) -> File | list[File]:
        if isinstance(index, slice):
            return [self._file(name) for name in self.names[index]]
        return self._file(self.names[index])

    @cached_property
    def _tree(self) -> Tree:
        return self.opened.enter_context(open_tree(self.place, self.top))

    def _file(self, name: str) -> File:
        file = self._tree.file(name)
        if file is None:
            raise GcabError(f"{name} has gone while the data set was read: start again.")
        return file
