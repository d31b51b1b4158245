"""Commands of gcab as processes that start in a moment: forked from this one, which has loaded torch already."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from gcab.cli.main import main

LOADED = ("torch._dynamo", "gcab.classifier.teaching", "gcab.classifier.distilling")  # what commands load, for seconds


def start(arguments: Sequence[object], output: Path) -> int:
    """Number of the process, and of its group; `output` gets all that it prints."""
    for module in LOADED:
        importlib.import_module(module)
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        run([*map(str, arguments)], output)
    os.setpgid(process, process)  # whoever of both comes first
    return process


def run(arguments: list[str], output: Path) -> None:
    """What `gcab` does, and the end of this process."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for place in (1, 2):
        os.dup2(file, place)
    sys.stdout, sys.stderr = (os.fdopen(place, "w", buffering=1, closefd=False) for place in (1, 2))
    code = 1
    try:
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def finished(arguments: Sequence[object], output: Path) -> tuple[int, str]:
    """The exit code of a command that is left alone, and all that it printed."""
    _, status = os.waitpid(start(arguments, output), 0)
    return os.waitstatus_to_exitcode(status), output.read_text()
