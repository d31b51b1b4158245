"""The protocol between the command line and the files of its verbs."""

import argparse
from collections.abc import Callable, Sequence
from typing import Protocol

from rich.console import Console
from rich.markup import escape

from gcab.errors import GcabError

Call = Callable[[argparse.Namespace, Console], int | None]  # the exit code, if it is not 0


class AddVerb(Protocol):
    """Adds a verb and returns its parser, for the arguments."""

    def __call__(self, name: str, call: Call, summary: str, epilog: str = "") -> argparse.ArgumentParser: ...


def say(console: Console, text: str) -> None:
    """Print lines without wrapping or highlighting, so that they can be searched for."""
    console.print(escape(text), highlight=False, soft_wrap=True)


def positive(text: str) -> int:
    """The type of an argument that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def add_views(parser: argparse.ArgumentParser) -> None:
    """How often an image is looked at."""
    meaning = "2: an image and its mirror image decide together, in twice the time (1)"
    parser.add_argument("--views", type=int, choices=(1, 2), default=1, help=meaning)


def settings_of(texts: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE, several times; the later one wins."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise GcabError(f"--set needs KEY=VALUE, such as training.lr=0.0005, not '{text}'.")
        settings[key.strip()] = value.strip()
    return settings
