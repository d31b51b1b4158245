"""A cache of decoded images: a file of raw pixels that later runs memory-map, and a journal of block checksums.

A block counts only once the journal has its checksum, so a run that was killed resumes at the block it was at, and a
damaged block is decoded again, alone. The file gets its final name when it is complete. The name contains the split,
the size and a hash of the list of files with their sizes and times: other images or sizes make another cache.
"""

import errno
import fcntl
import hashlib
import logging
import math
import os
import random
import re
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gcab.data.archive import File
from gcab.data.decode import Progress, decode_many
from gcab.data.decoders import decode_blocks
from gcab.errors import GcabError
from gcab.sizes import Size, sides

FORMAT = "2"  # raise when decoding changes, or old caches would hide it
FOLDER = ".gcab-cache"
ELSEWHERE = "GCAB_CACHE"  # environment variable: a folder to use instead of the one beside the data
BLOCK = 8 * 2**20  # bytes, about
IN_MEMORY = 4 * 2**30  # bytes that are decoded at every start where there is no place for a cache
CHECKING = 0.75  # seconds of checking at every start, for about 2 GB of page cache; no limit if the file was modified

watching: ContextVar[Progress | None] = ContextVar("watching", default=None)


@contextmanager
def watched(progress: Progress) -> Iterator[None]:
    """A context manager that reports how many images of how many are decoded, to a callback."""
    token = watching.set(progress)
    try:
        yield
    finally:
        watching.reset(token)


def decoded(files: Sequence[File], size: Size, name: str, root: Path) -> Tensor:
    """Images of a data set in `root` as (n, 3, height, width) bytes, from the cache of this name if there is one."""
    chosen = os.environ.get(ELSEWHERE)
    folder = Path(chosen) if chosen else root / FOLDER
    cache = Cache(folder / name, len(files), size)
    if cache.is_whole():
        return cache.mapped()
    if not cache.has_room():
        if cache.bytes > IN_MEMORY:
            raise GcabError(
                f"'{folder}' cannot take {cache.bytes / 1e9:.1f} GB of decoded images: make room or let it be "
                f"written, or name another folder in the environment variable {ELSEWHERE}."
            )
        logging.getLogger("gcab.data").warning(
            f"'{folder}' cannot take {cache.bytes / 1e9:.2g} GB of decoded images: they are decoded at every start, "
            f"unless the environment variable {ELSEWHERE} names a folder that can."
        )
        return decode_many(files, size, watching.get())
    cache.fill(files)
    if not cache.is_whole(thorough=True):
        raise GcabError(
            f"the decoded images in '{folder}' changed while they were written: run the same command again."
        )
    return cache.mapped()


def fingerprint(stamps: Iterable[str]) -> str:
    """A hash that names a cache: other files, sizes or times make another one."""
    digest = hashlib.sha256(FORMAT.encode())
    for stamp in stamps:
        digest.update(f"{stamp}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def stamps(root: Path, files: Sequence[Path]) -> Iterator[str]:
    """Name, size and modification time of each file."""
    for file in files:
        about = file.stat()
        name = file.relative_to(root) if file.is_relative_to(root) else file
        yield f"{name.as_posix()}\0{about.st_size}\0{about.st_mtime_ns}"


class Cache:
    """The decoded images of one split at one size."""

    def __init__(self, stem: Path, count: int, size: Size) -> None:
        self.images, self.part, self.journal = (stem.with_name(stem.name + end) for end in (".images", ".part", ".log"))
        self.shape = (count, 3, *sides(size))
        self.image_bytes = math.prod(self.shape[1:])
        self.bytes, self.size = count * self.image_bytes, size
        per_block = max(1, BLOCK // self.image_bytes)
        self.blocks = [range(first, min(first + per_block, count)) for first in range(0, count, per_block)]

    def mapped(self) -> Tensor:
        """Memory-map the file copy-on-write, as torch wants writable memory."""
        return torch.from_numpy(np.memmap(self.images, np.uint8, "c", shape=self.shape))

    def has_room(self) -> bool:
        """Whether the folder can be written and the disk takes what is missing."""
        folder = self.images.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            there = self.part.stat().st_blocks * 512 if self.part.exists() else 0
            there = self.bytes if self.images.exists() else there
            return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 1.05 * (self.bytes - there)
        except OSError:
            return False

    def is_whole(self, thorough: bool = False) -> bool:
        """Whether all images are there, undamaged; unless it is to be thorough, as many are checked as time allows."""
        records, checked_at = self.records()
        if not self.images.is_file() or len(records) < len(self.blocks):
            return False
        about = self.images.stat()
        if about.st_size != self.bytes:  # whatever is checked below, all of it must be there to be mapped
            return False
        untouched = checked_at == about.st_mtime_ns
        until = time.monotonic() + CHECKING if untouched and not thorough else math.inf
        numbers = random.sample(range(len(self.blocks)), len(self.blocks))  # others at every start
        return len(self.sound(self.images, records, numbers, until)) == len(numbers)

    def records(self) -> tuple[dict[int, int], int]:
        """The checksums in the journal, and when the finished file was last changed."""
        written = self.journal.read_text(encoding="ascii", errors="replace") if self.journal.is_file() else ""
        found = re.findall(r"^(\d+) ([0-9a-f]{8})$(?=\n)", written, re.MULTILINE)
        times = re.findall(r"^finished (\d+)$(?=\n)", written, re.MULTILINE)
        sums = {int(number): int(checksum, 16) for number, checksum in found if int(number) < len(self.blocks)}
        return sums, int(times[-1]) if times else -1

    def sound(self, file: Path, records: dict[int, int], numbers: Sequence[int], until: float = math.inf) -> set[int]:
        """Which of these blocks match their checksums; those that are not checked in time count as matching."""
        if not file.is_file() or file.stat().st_size > self.bytes:
            return set()
        with file.open("rb") as stream:

            def is_sound(number: int) -> bool:
                if time.monotonic() > until:
                    return True
                block = self.blocks[number]
                content = os.pread(
                    stream.fileno(), len(block) * self.image_bytes, self.image_bytes * block.start
                )  # read, as a mapped file that shrinks would kill the process
                return len(content) == len(block) * self.image_bytes and zlib.crc32(content) == records[number]

            with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
                return {number for number, good in zip(numbers, pool.map(is_sound, numbers), strict=True) if good}

    def fill(self, files: Sequence[File]) -> None:
        """Decode missing or damaged blocks, under an advisory lock so that only one process does."""
        try:
            with self.journal.open("a+b") as journal:
                with suppress(OSError):  # of file systems without locks: both would write the same
                    fcntl.flock(journal, fcntl.LOCK_EX)
                if self.is_whole(thorough=True):
                    return  # another process has made it, and may have it open
                if self.images.exists():
                    self.images.rename(self.part)
                self._decode(files, journal.fileno())
                self.part.replace(self.images)
                self._note(journal.fileno(), f"finished {self.images.stat().st_mtime_ns}")
        except OSError as problem:
            self._refuse(problem)

    def _decode(self, files: Sequence[File], journal: int) -> None:
        records, _ = self.records()
        good = self.sound(self.part, records, sorted(records))
        missing = [self.blocks[number] for number in range(len(self.blocks)) if number not in good]
        if self.part.exists():
            os.truncate(self.part, min(self.part.stat().st_size, self.bytes))
        done, progress = len(files) - sum(map(len, missing)), watching.get()
        work = [(block.start * self.image_bytes, files[block.start : block.stop]) for block in missing]
        for (offset, images), checksum in decode_blocks(work, self.size, self.part):
            number = offset // self.image_bytes // len(self.blocks[0])
            self._note(journal, f"{number} {checksum:08x}")
            done += len(images)
            if progress:
                progress(done, len(files))

    def _note(self, journal: int, line: str) -> None:
        os.write(journal, f"\n{line}\n".encode())  # whatever a killed process left half-written ends here

    def _refuse(self, problem: OSError) -> None:
        """Raise the error for a disk that cannot take the cache."""
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = "the disk is full" if full else problem.strerror or str(problem)
        raise GcabError(
            f"the decoded images ({self.bytes / 1e9:.2g} GB) cannot be written to '{self.images.parent}' ({reason}): "
            f"make room and start again, which goes on from here, or name another folder in the environment "
            f"variable {ELSEWHERE}."
        ) from problem
