"""What a person sees in a real terminal, and what Ctrl-C does."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

from helpers.prepared import Program
from helpers.processes import LIMIT, gcab, records, start, unmeasured
from helpers.settings import train_flags

TRAIN = ["train", "digits/5", *train_flags("finetune", {"training.epochs": 2}), "--run", "run"]


class Terminal:
    """A program in a terminal of 100 columns."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        self.keyboard, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = Program(arguments, folder, {**unmeasured(), "TERM": "xterm-256color"}, inside)
        os.close(inside)
        self.shown = ""

    def read(self) -> bool:
        """Take in what appears next; False once the program has left the terminal."""
        ready, _, _ = select.select([self.keyboard], [], [], LIMIT)
        assert ready, self.shown
        try:
            part = os.read(self.keyboard, 65536)
        except OSError:  # how Linux says that nobody is at the other end
            part = b""
        self.shown += part.decode(errors="replace")
        return bool(part)

    def leave(self) -> int:
        while self.read():
            pass
        os.close(self.keyboard)
        with self.process as process:
            return process.wait(LIMIT)


def plain(shown: str) -> str:
    """Without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_a_bar_moves_while_it_trains_and_a_table_ends_it(tmp_path: Path) -> None:
    terminal = Terminal(*TRAIN, folder=tmp_path)
    assert terminal.leave() == 0
    during, table, after = plain(terminal.shown).partition("Accuracy per task")
    assert table
    assert "ACC_TAG" in after
    places = re.findall(r"finetune  task (\d)/5  epoch (\d)/2 [━╸╺ ]+(\d+)%", during)
    assert {task for task, _, _ in places} == set("12345")
    shares = [int(share) for _, _, share in places]
    assert shares == sorted(shares)
    assert len(set(shares)) >= 5
    assert "classification 0." in during
    assert all(len(line) <= 100 for line in re.split(r"[\r\n]+", during))
    assert len(re.findall(r"task \d of 5 learned", during)) == 5


def test_ctrl_c_says_how_to_continue_and_the_same_command_does(tmp_path: Path) -> None:
    terminal = Terminal(*TRAIN, folder=tmp_path)
    while "task 2/5" not in plain(terminal.shown):
        assert terminal.read(), plain(terminal.shown)
    os.write(terminal.keyboard, b"\x03")
    assert terminal.leave() == 130
    shown = plain(terminal.shown)
    assert "gcab: stopped; the same command continues from the last checkpoint." in shown
    assert "Traceback" not in shown
    assert len(records(tmp_path / "run", "task")) < 5
    again = gcab(*TRAIN, folder=tmp_path)
    assert again.returncode == 0
    assert re.search(r"^finetune  continuing: task [2-5]$", again.stdout, re.MULTILINE)
    assert [record["task"] for record in records(tmp_path / "run", "task")] == [1, 2, 3, 4, 5]


def test_an_interrupt_where_there_is_no_terminal(tmp_path: Path) -> None:
    process = start(*TRAIN, folder=tmp_path)
    until = time.monotonic() + LIMIT
    while not records(tmp_path / "run", "epoch"):
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert errors == "\ngcab: stopped; the same command continues from the last checkpoint.\n"
