"""One process at a time works in a run folder, and a dead one does not block it."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gcab.errors import GcabError
from gcab.runs.lock import RunLock

HOLDER = """
import sys, time
from pathlib import Path
from gcab.runs.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_told_who_holds_the_folder_until_that_one_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "demo"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(GcabError) as caught, RunLock(folder):
            pass
        assert str(caught.value) == (
            f"another gcab process (pid {holder.pid}) is working in {folder}; wait for it or stop it"
        )
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with RunLock(folder):
        assert (folder / "lock").read_text() == str(os.getpid())


def test_the_lock_ends_with_its_block_even_after_an_error(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    with pytest.raises(ValueError, match="inside"), lock:
        raise ValueError("inside")
    with lock, pytest.raises(GcabError, match=f"pid {os.getpid()}"), RunLock(tmp_path):
        pass


def test_a_holder_that_has_not_written_its_number_yet(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(GcabError, match="another gcab process is working in"), RunLock(tmp_path):
            pass


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refusal)
    with pytest.raises(GcabError, match=r"cannot save .*lock"), RunLock(tmp_path):
        pass
