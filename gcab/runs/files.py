"""Atomic file writes (temporary file, fsync, rename): a crash leaves the old file or the new one, never a mixture."""

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from gcab.errors import GcabError


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Context manager that turns an OSError while `path` is saved into a GcabError that says what to do."""
    try:
        yield
    except OSError as error:
        again = "run the same command again; nothing saved earlier was lost"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            sentence = f"disk full while saving {path}: free some space and {again}"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            sentence = f"no permission to save {path}: make its folder writable or choose another one"
        else:
            sentence = f"cannot save {path} ({error.strerror or error}): solve this and {again}"
        raise GcabError(sentence) from error


def parsed(data: bytes) -> Any:
    """JSON of a file that may be damaged: whatever is wrong with it is a ValueError, excessive nesting, too."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Context manager for an atomic write: the temporary file, after fsync, replaces `path` if the block succeeds."""
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            with temporary.open("xb") as file:
                with suppress(OSError):  # of file systems without locks
                    fcntl.flock(file, fcntl.LOCK_EX)
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def remove_abandoned(path: Path) -> None:
    """Delete what killed writers of `path` left beside it: nobody holds the lock of such a file any more."""
    for entry in path.parent.iterdir():
        if re.fullmatch(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp", entry.name):
            with suppress(OSError), entry.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                entry.unlink()


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the content of `path` atomically."""
    with writing(path) as file:
        file.write(data)


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by readable JSON atomically; refuses NaN and infinity, which JSON does not have."""
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """fsync a folder: a renamed file survives a power cut only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporaries(folder: Path) -> None:
    """Delete what a killed `writing` left in `folder`; the caller holds the run's lock."""
    with saving(folder):
        for temporary in folder.glob(".*.tmp"):
            temporary.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Give the checksum by which a later reader knows the file is intact."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
