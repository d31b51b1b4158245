"""A document that can be followed: its blocks are files, commands and what the commands print."""

import io
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from gcab.cli.main import main
from helpers.prepared import Program, started
from helpers.processes import LIMIT, unmeasured

LEFT_OUT = "..."  # a line of an output block that stands for any number of lines
PORT = "8000"  # of the server in the document
# Numbers that differ between machines and runs; counts, generations and exit codes are the same everywhere.
EXACT_AFTER, EXACT_BEFORE = ("generation ", '"generation": ', "exit code "), "classes|tasks|photos|held-out|held out"
MEASURED = re.compile(
    "".join(f"(?<!{words})" for words in EXACT_AFTER)
    + rf"(?<!\w)\d[\d,.]*+(?:e-\d+)?+(?! (?:{EXACT_BEFORE})\b)(?: [kMG]B)?+"  # possessive: never a part of a number
)
FAR_RIGHT = " " * 20  # where the less probable classes of an image stand, which differ between machines
SERVER = "gcab serve "
# Lines that need no shell and no process of their own, of which each would load torch: the same code is called here.
HERE = re.compile(r'(gcab [^|>;&]+?|python \w+\.py)(?: \|\| echo "(exit code )\$\?")?')


@dataclass(frozen=True)
class Block:
    """A fenced part of a document."""

    kind: str  # python: a file whose name is in its first line; bash: commands; text: what the commands before print
    body: str


def blocks_of(document: Path) -> list[Block]:
    """In order; those without a language are neither files nor commands."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(kind, body) for kind, body in found]


def missing_lines(expected: str, printed: str) -> list[str]:
    """Lines of an output block that were not printed, each looked for below the one before it."""
    rest = [comparable(line) for line in printed.splitlines()]
    missing = []
    for line in expected.splitlines():
        wanted = comparable(line)
        if not wanted or wanted == LEFT_OUT or line.startswith(FAR_RIGHT):
            continue
        if wanted in rest:
            rest = rest[rest.index(wanted) + 1 :]
        else:
            missing.append(line)
    return missing


def comparable(line: str) -> str:
    """Without what is measured, and with single blanks."""
    return " ".join(MEASURED.sub("#", line).split())


class Follower:
    """Does what a document says, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.server: Program | None = None
        self.printed: list[tuple[str, str]] = []  # (commands, output) of each bash block

    def follow(self, block: Block) -> list[str]:
        """Carry one block out; returns what is wrong with it."""
        if block.kind == "python":
            name = re.match(r"# (\w+\.py)\n", block.body)
            if name is None:
                return [f"a file without a name: {block.body.splitlines()[0]}"]
            (self.folder / name[1]).write_text(block.body, encoding="utf-8")
        elif block.kind == "bash":
            commands = block.body.replace(f":{PORT}", f":{self.port}")
            printed = self.start(commands) if commands.startswith(SERVER) else self.run(commands)
            self.printed.append((block.body, printed))
        elif block.kind == "text":
            commands, printed = self.printed[-1]
            return [f"{commands}does not print: {line}\nbut:\n{printed}" for line in missing_lines(block.body, printed)]
        return []

    def run(self, commands: str) -> str:
        """Line by line; returns all that they print."""
        return "".join(self.run_line(line) for line in commands.splitlines())

    def run_line(self, line: str) -> str:
        plain = HERE.fullmatch(line)
        if plain is None:
            return self.shell(line)
        with chdir(self.folder), redirect_stdout(io.StringIO()) as printed, redirect_stderr(printed):
            code = call(plain[1])
            if plain[2]:
                print(plain[2], code, sep="")
        assert plain[2] or code == 0, f"{line} ends with {code}:\n{printed.getvalue()}"
        return printed.getvalue()

    def shell(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            cwd=self.folder, env=environment(), timeout=LIMIT, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}ends with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def start(self, command: str) -> str:
        """A server in the background; returns the line that says that it is there."""
        assert self.server is None, "one server at a time"
        _, *arguments = [*command.split(), "--port", str(self.port)]
        self.server = Program(arguments, self.folder, environment())
        return self.server.stdout.readline()

    def stop(self) -> str:
        """Ctrl-C; returns what the server says at its end."""
        assert self.server is not None
        server, self.server = self.server, None
        server.send_signal(signal.SIGINT)
        rest = "".join(server.communicate(timeout=LIMIT))
        assert server.returncode == 0, rest
        return rest


def call(command: str) -> int:
    """`gcab ...` or `python file.py`, in this process; the exit code."""
    program, *arguments = shlex.split(command)
    if program == "gcab":
        return main(arguments)
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


@contextmanager
def following(folder: Path) -> Iterator[Follower]:
    """No server outlives the block."""
    follower = Follower(folder)
    try:
        yield follower
    finally:
        if follower.server is not None:
            follower.server.kill()
            follower.server.communicate()


def environment() -> dict[str, str]:
    """Programs that are forked first, one thread, a wide terminal."""
    programs = f"{started()}{os.pathsep}{os.environ['PATH']}"
    return {**unmeasured(), "PATH": programs, "COLUMNS": "120"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
