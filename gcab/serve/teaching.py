"""One lesson at a time: `gcab learn` on a copy of the model, in a process of its own, then the new model."""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from gcab.classifier.model_folder import ModelFolder
from gcab.errors import GcabError
from gcab.serve.archive import unpack
from gcab.serve.decoding import Decoders
from gcab.serve.limits import Limits, RequestError, needing_room
from gcab.serve.photos import check_readable
from gcab.serve.wording import without_paths
from gcab.serve.workplace import Workplace, workplace
from gcab.sizes import Size

EVENTS = 200
LONGEST_LINE = 2**16
NOT_PASSED_ON = frozenset(("GCAB_TOKEN", "FORCE_COLOR"))  # environment variables that the subprocess does not get
STOPPED = "the lesson stopped before its end: the model is as it was, teach again."
UNEXPECTED = "the lesson failed unexpectedly: the model is as it was; whoever runs the server finds the reason there."


class Place(Protocol):
    """The model that is taught."""

    folder: ModelFolder

    @property
    def image_size(self) -> Size: ...

    @property
    def decoders(self) -> Decoders: ...

    def expected_accuracy(self) -> float | None: ...

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
        """Context manager for exclusive changes of the model; raises 409 while another is under way."""
        if self.busy:
            raise RequestError(409, "the model is being changed already: wait until that is done.")
        self.busy = True
        try:
            yield
        finally:
            self.busy = self.state == "running"

    async def start(self, archive: IO[bytes]) -> str:
        """Check and unpack a zip, begin to learn from it and return the lesson's name; only inside `alone`."""
        with refusing(self.place.folder.path), contextlib.ExitStack() as preparing:
            work = preparing.enter_context(workplace(self.place.folder))
            await asyncio.to_thread(work.copy_model)
            photos = await asyncio.to_thread(unpack, archive, work.photos, self.limits)
            kept = preparing.pop_all()
        self.state, self.error = "running", None
        self.events.clear()
        self.accuracy_before, self.accuracy_after = self.place.expected_accuracy(), None
        self.lesson = asyncio.create_task(self.teach(work, photos, kept))
        return secrets.token_hex(8)

    async def stop(self) -> None:
        """End a lesson under way, as the server ends; the model stays as it was."""
        if self.lesson is not None and not self.lesson.done():
            self.lesson.cancel()
            await asyncio.wait([self.lesson])

    async def teach(self, work: Workplace, photos: Mapping[Path, str], kept: contextlib.ExitStack) -> None:
        """The lesson, to its good or bad end; `kept` then removes the photos, and the copy with its checkpoints."""
        state: Literal["done", "failed"] = "failed"
        try:
            await asyncio.to_thread(check_readable, photos, self.place.image_size, self.place.decoders)
            await self.run(work)
            with refusing(work.copy.path, work.folder.path):
                await asyncio.to_thread(work.hand_over)
            await self.place.reload()
            self.accuracy_after = self.place.expected_accuracy()
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

    async def run(self, work: Workplace) -> None:
        """Run `gcab learn` as a subprocess, which takes long and must not take the server down."""
        environment = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
        process = await asyncio.create_subprocess_exec(
            *self.learn,
            str(work.copy.path),
            str(work.photos),
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
            _, complaint = await asyncio.gather(self.follow(process.stdout, work), tail(process.stderr))
            code = await process.wait()
        finally:
            await end(process, self.limits.stop_seconds)
        if code != 0:
            raise RequestError(500, without_paths(sentence(complaint, code), work.photos, work.copy.path))

    async def follow(self, stream: asyncio.StreamReader, work: Workplace) -> None:
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
                    self.events.append(told(event, work.photos, work.copy.path))


@contextlib.contextmanager
def refusing(*places: Path) -> Iterator[None]:
    """Context manager that turns errors of gcab or the disk into a `RequestError` without paths."""
    try:
        with needing_room():
            yield
    except GcabError as problem:
        raise RequestError(409, without_paths(str(problem), *places)) from problem


def told(value: Any, *places: Path) -> Any:
    """A value from JSON without paths of this machine."""
    if isinstance(value, str):
        return without_paths(value, *places)
    if isinstance(value, list):
        return [told(part, *places) for part in value]
    if isinstance(value, dict):
        return {name: told(part, *places) for name, part in value.items()}
    return value


async def tail(stream: asyncio.StreamReader) -> str:
    """The last bytes of a process's output."""
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
    """The one sentence of `gcab` on its standard error; anything else goes to the server's own."""
    said = [line.removeprefix("gcab:").strip() for line in complaint.splitlines() if line.startswith("gcab:")]
    if code == 2 and said:
        return said[-1]
    print(complaint, file=sys.stderr)
    return UNEXPECTED
