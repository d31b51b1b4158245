"""The worker process that decodes untrusted pictures: `python -m gcab.serve.decoder`, for one picture after another.

It imports Pillow and little else, so it starts fast, and the system kills it when a picture takes more processor time
or memory than it may. On standard input come a line of JSON with the request and the bytes of a file, on standard
output goes a line of JSON with the answer and the pixels of the square, if there is one.
"""

import json
import resource
import signal
import sys
import time
from pathlib import Path
from typing import IO, Any

from PIL import Image

from gcab.data.containers.contents import Bounds, TooLargeError
from gcab.data.pictures import enough_for, examine, read_picture
from gcab.errors import GcabError
from gcab.sizes import simplest

READY = b"ready\n"
STATEMENT = Path("/proc/self/statm")  # its first number: pages of address space; there is none but on Linux


def main() -> None:
    """Answer requests until standard input closes."""
    Image.init()  # every reader is imported before memory is counted
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its workers itself
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(READY)
    answers.flush()
    while line := requests.readline():
        request: dict[str, Any] = json.loads(line)
        limit_growth(request["growth"])
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])  # the signal ends the process, in the midst of C too
        began = time.process_time()
        picture, answer = decoded(requests, request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer["seconds"] = time.process_time() - began
        answers.write(json.dumps(answer).encode() + b"\n" + picture)
        answers.flush()


def decoded(requests: IO[bytes], request: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """The picture's bytes, row by row, or nothing and the reason."""
    size, name = simplest(*request["size"]), request["name"]
    try:
        contents = examine(requests.read(request["bytes"]), name, Bounds(**request["bounds"]), enough_for(size))
        return read_picture(contents, size, name).tobytes(), {}
    except TooLargeError as problem:
        return b"", {"status": 413, "error": str(problem)}
    except GcabError as problem:
        return b"", {"status": 422, "error": str(problem)}
    except MemoryError:
        return b"", {"status": 413, "error": f"{name} needs more memory than it may: shrink it first."}


def limit_growth(growth: int) -> None:
    """Limit the address space to so many bytes beyond those in use now."""
    if STATEMENT.exists():
        used = int(STATEMENT.read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + growth, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
