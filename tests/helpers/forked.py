"""An interpreter that is forked from one with torch instead of started: `forked.py SOCKET PYTHON ARGUMENTS...`.

Modules and texts are, other programs are started by PYTHON. Nothing is imported here that takes long to import.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

IGNORED = {"-B", "-P"}  # options without a meaning for a program that is forked
OF_ITS_OWN = {"submitit.local._local"}  # whose process number its jobs are named by
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def given_order(
    kind: str,
    program: str,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    terminal: bool = False,
    unbuffered: bool = False,
) -> dict[str, Any]:
    """`kind` is -m for a module and -c for a text."""
    return {
        "kind": kind,
        "program": program,
        "arguments": list(arguments),
        "folder": str(folder),
        "environment": dict(environment),
        "terminal": terminal,
        "unbuffered": unbuffered,
    }


def send_order(address: str, order: dict[str, Any], files: Mapping[int, int]) -> tuple[socket.SocketIO, int]:
    """Start a program with these files under these numbers; a stream that tells how it ends, and its process."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        text = json.dumps({**order, "files": list(files)}).encode() + b"\n"
        sent = socket.send_fds(connection, [text], list(files.values()))
        connection.sendall(text[sent:])
        told = connection.makefile("rb", buffering=0)  # whoever waits for a line must not have read it already
    return told, int(told.readline())


def parsed(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The order that an interpreter's arguments are, or None for what only an interpreter of its own can do."""
    rest, unbuffered = list(arguments), False
    while rest and (rest[0] in IGNORED or rest[0] == "-u"):
        unbuffered |= rest.pop(0) == "-u"
    if len(rest) < 2 or rest[0] not in ("-m", "-c") or rest[1] in OF_ITS_OWN:
        return None
    return given_order(rest[0], rest[1], rest[2:], Path.cwd(), os.environ, unbuffered=unbuffered)


def inherited() -> list[int]:
    """All files that whoever started this left open for it."""
    found = []
    for number in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:  # that of the listing itself
            continue
    return found


def main() -> int:
    address, python, *arguments = sys.argv[1:]
    order = parsed(arguments)
    if order is None:
        os.execv(python, [python, *arguments])
    files = inherited()
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    told, process = send_order(address, order, {number: number for number in files})
    for sent in PASSED_ON:
        signal.signal(sent, lambda sent, _: os.kill(process, sent))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in files:  # the program alone holds them, so that its end is theirs
        os.dup2(nothing, number)
    code = int(told.readline())
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
