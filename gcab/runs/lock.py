"""One writer per run folder: two trainings in the same place would corrupt each other's metrics."""

import fcntl
import os
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType

from gcab.errors import OccupiedError
from gcab.runs.files import saving


class RunLock:
    """An advisory lock on `folder`, which the operating system releases however the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: TextIOWrapper | None = None

    def __enter__(self) -> "RunLock":
        path = self.folder / "lock"
        with saving(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            file = path.open("a+", encoding="utf-8")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip()
                file.close()
                who = f" (pid {holder})" if holder else ""
                raise OccupiedError(
                    f"another gcab process{who} is working in {self.folder}; wait for it or stop it"
                ) from None
            except BaseException:
                file.close()
                raise
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: deleting it would let a third process lock a new file beside a second one's old one.
        if self._file is not None:
            self._file.close()
            self._file = None
