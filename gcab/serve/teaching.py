"""One lesson at a time: photos in a temporary folder, `gcab learn` in a process of its own, then the new model."""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from gcab.errors import GcabError
from gcab.runs.lock import RunLock
from gcab.serve.archive import unpack
from gcab.serve.limits import Limits, RequestError
from gcab.serve.wording import without_paths

PREFIX = "gcab-teach-"
EVENTS = 200
LONGEST_LINE = 2**16
NOT_PASSED_ON = frozenset(("GCAB_TOKEN", "FORCE_COLOR"))  # to the process that learns
STOPPED = "the lesson stopped before its end: the model is as it was, teach again."
UNEXPECTED = "the lesson failed unexpectedly: the model is as it was; whoever runs the server finds the reason there."


class Place(Protocol):
    """The model that is taught."""

    path: Path

    def recorded_accuracy(self) -> float | None: ...

    async def reload(self) -> None: ...


class Teacher:
    """The state that GET /teach shows, and the process behind it."""

    def __init__(self, place: Place, limits: Limits, learn: Sequence[str]) -> None:
        self.place, self.limits = place, limits
        self.learn = learn  # the command, to which the model and the photos are added
        self.state: Literal["idle", "running", "done", "failed"] = "idle"
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self.accuracy_before: float | None = None
        self.accuracy_after: float | None = None
        self.error: str | None = None
        self.busy = False  # from the first byte of a zip, or while something is undone
        self.lesson: asyncio.Task[None] | None = None

    def report(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "events": list(self.events),
            "accuracy_before": self.accuracy_before,
            "accuracy_after": self.accuracy_after,
            "error": self.error,
        }

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nobody else teaches or undoes meanwhile."""
        if self.busy:
            raise RequestError(409, "the model is being changed already: wait until that is done.")
        self.busy = True
        try:
            yield
        finally:
            self.busy = self.state == "running"

    async def start(self, archive: IO[bytes]) -> str:
        """Check and unpack a zip, begin to learn from it and return the lesson's name; only inside `alone`."""
        with contextlib.ExitStack() as unpacking:
            photos = unpacking.enter_context(place_for_photos())
            await asyncio.to_thread(unpack, archive, photos, self.limits)
            kept = unpacking.pop_all()
        self.state, self.error = "running", None
        self.events.clear()
        self.accuracy_before, self.accuracy_after = self.place.recorded_accuracy(), None
        self.lesson = asyncio.create_task(self.teach(photos, kept))
        return secrets.token_hex(8)

    async def stop(self) -> None:
        """End a lesson under way, as the server ends; the model stays as it was."""
        if self.lesson is not None and not self.lesson.done():
            self.lesson.cancel()
            await asyncio.wait([self.lesson])

    async def teach(self, photos: Path, kept: contextlib.ExitStack) -> None:
        """The lesson, to its good or bad end; `kept` then removes the photos."""
        state: Literal["done", "failed"] = "failed"
        try:
            await self.run(photos)
            await self.place.reload()
            self.accuracy_after = self.place.recorded_accuracy()
            state = "done"
        except RequestError as refused:
            self.error = refused.sentence
        except asyncio.CancelledError:
            self.error = STOPPED
            raise
        except Exception:
            self.error = UNEXPECTED
            logging.getLogger("gcab.serve").exception("a lesson failed")
        finally:
            kept.close()
            self.state, self.busy = state, False

    async def run(self, photos: Path) -> None:
        """`gcab learn` as a process: it needs the processor for long, and a mistake in it ends no server."""
        environment = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
        process = await asyncio.create_subprocess_exec(
            *self.learn,
            str(self.place.path),
            str(photos),
            "--progress",
            "json",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            env=environment,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            _, complaint = await asyncio.gather(self.follow(process.stdout, photos), tail(process.stderr))
            code = await process.wait()
        finally:
            await end(process, self.limits.stop_seconds)
        if code != 0:
            raise RequestError(500, without_paths(sentence(complaint, code), photos, self.place.path))

    async def follow(self, stream: asyncio.StreamReader, photos: Path) -> None:
        """Keep the lines that are events; anything else a library prints is left out."""
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than any event
                continue
            if not line:
                return
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    self.events.append(told(event, photos, self.place.path))


@contextlib.contextmanager
def place_for_photos() -> Iterator[Path]:
    """Where the photos of one lesson may be; they are gone afterwards, and locked so that no other server does that."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with RunLock(folder):
            yield folder / "photos"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Photos that a killed server left behind: nobody holds their lock any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, GcabError):
            entry = folder.lstat()
            if stat.S_ISDIR(entry.st_mode) and entry.st_uid == os.getuid():  # anyone may put things in this place
                with RunLock(folder):
                    shutil.rmtree(folder)


def told(value: Any, *places: Path) -> Any:
    """A value from JSON as strangers may see it."""
    if isinstance(value, str):
        return without_paths(value, *places)
    if isinstance(value, list):
        return [told(part, *places) for part in value]
    if isinstance(value, dict):
        return {name: told(part, *places) for name, part in value.items()}
    return value


async def tail(stream: asyncio.StreamReader) -> str:
    """The end of what a process says."""
    kept = b""
    while chunk := await stream.read(LONGEST_LINE):
        kept = (kept + chunk)[-LONGEST_LINE:]
    return kept.decode("utf-8", "replace")


async def end(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Ask a process that still runs to stop, and make it stop."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def sentence(complaint: str, code: int) -> str:
    """The one sentence of `gcab` on its standard error; whatever else it said is for the server's own eyes."""
    said = [line.removeprefix("gcab:").strip() for line in complaint.splitlines() if line.startswith("gcab:")]
    if code == 2 and said:
        return said[-1]
    print(complaint, file=sys.stderr)
    return UNEXPECTED
