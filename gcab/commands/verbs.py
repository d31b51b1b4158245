"""What the command line and the files of its verbs agree on."""

import argparse
from collections.abc import Callable
from typing import Protocol

from rich.console import Console

Call = Callable[[argparse.Namespace, Console], int | None]  # the exit code, if it is not 0


class AddVerb(Protocol):
    """Adds a verb and returns its parser, for the arguments."""

    def __call__(self, name: str, call: Call, summary: str, epilog: str = "") -> argparse.ArgumentParser: ...
