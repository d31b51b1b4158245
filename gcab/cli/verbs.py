"""The protocol between the command line and the files of its verbs."""

import argparse
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape

from gcab.data.formats import ON_REQUEST, VARIABLE, ask_for
from gcab.errors import GcabError
from gcab.terminal import visible

NARROWEST = 24  # characters that a wrapped column may be wide; below that it goes under its row

if TYPE_CHECKING:
    from gcab.classifier.learner import ContinualClassifier
    from gcab.classifier.model_folder import ModelFolder

Call = Callable[[argparse.Namespace, Console], int | None]  # the exit code, if it is not 0


class AddVerb(Protocol):
    """Adds a verb and returns its parser, for the arguments."""

    def __call__(self, name: str, call: Call, summary: str, epilog: str = "") -> argparse.ArgumentParser: ...


def say(console: Console, *lines: str) -> None:
    """Print lines without wrapping or highlighting, so that they can be searched for."""
    for line in lines:
        console.print(escape(visible(line)), highlight=False, soft_wrap=True)


def say_table(console: Console, lines: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> None:
    """Rows below their heads in columns as wide as they need; the columns of `left` and no others begin at the left.

    In a window that is too narrow, the last column is wrapped between words, beside its row or under it.
    """
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    start = sum(widths[:-1]) + 2 * len(widths[:-1])
    if console.is_terminal and start + widths[-1] > console.width and len(widths) - 1 in left:
        place = start if console.width - start >= NARROWEST else widths[0] + 2
        for line in lines:
            *cells, last = line
            parts = textwrap.wrap(last, console.width - place) or [""]
            fits = line is lines[0] and start + cell_len(last) <= console.width  # a head goes beside its row if it can
            beside = [*cells, parts.pop(0) if place == start or fits else ""]
            say_row(console, beside, [*widths[:-1], 0], left)
            for part in parts:
                say(console, " " * place + part)
        return
    for line in lines:
        say_row(console, line, widths, left)


def say_row(console: Console, line: Sequence[str], widths: Sequence[int], left: Sequence[int]) -> None:
    """A row whose cells are filled up to their columns' widths."""
    cells = []
    for place, (text, width) in enumerate(zip(line, widths, strict=True)):
        blank = " " * (width - cell_len(text))
        cells.append(text + blank if place in left else blank + text)
    say(console, "  ".join(cells).rstrip())


def counted(count: int, what: str) -> str:
    """A number and its noun as people say them: 1 photo, 2 photos, 2 classes."""
    ending = "es" if what.endswith("s") else "s"
    return f"{count} {what}{ending * (count != 1)}"


def require_model(path: Path | str) -> None:
    """Refuse a place without a model before torch is loaded, which takes seconds."""
    from gcab.classifier.model_folder import ModelFolder

    ModelFolder(path).current()


def positive(text: str) -> int:
    """The type of an argument that counts something."""
    return whole(text, 1, "above 0")


def steps(text: str) -> int:
    """The type of an argument that counts something and may be 0."""
    return whole(text, 0, "from 0 on")


def whole(text: str, least: int, which: str) -> int:
    """A whole number that is at least `least`, which the refusal of another one puts in words."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number {which}")
    return int(text)


def new_file(text: str) -> Path:
    """The type of an argument that names a file to write, refused before any work if it cannot be one."""
    if os.path.isdir(Path(text)):  # noqa: PTH112 - Path's would raise, of too long a name
        raise argparse.ArgumentTypeError(f"'{text}' is a folder: give the name of a file")
    return Path(text)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that trains runs."""
    from gcab.profiles import DEFAULT_PROFILE, PROFILES

    parser.add_argument("--profile", default=DEFAULT_PROFILE, help=f"{', '.join(PROFILES)} ({DEFAULT_PROFILE})")
    parser.add_argument("--seed", type=int, default=1, help="decides every random choice (1)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the data set (not for digits)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs)")


def add_keep(parser: argparse.ArgumentParser) -> None:
    """Add --keep: how far `undo` can go back."""
    meaning = "generations to keep for undo from now on, 0: none (as before, at first 1)"
    parser.add_argument("--keep", type=steps, metavar="N", help=meaning)


def add_views(parser: argparse.ArgumentParser) -> None:
    """Add --views: how many views of an image are averaged."""
    meaning = "2: an image and its mirror image decide together, in twice the time (1)"
    parser.add_argument("--views", type=int, choices=(1, 2), default=1, help=meaning)


@contextmanager
def next_generation(path: Path, device: str) -> "Iterator[tuple[ContinualClassifier, ModelFolder]]":
    """Context manager for a change of a folder's model, which becomes the next generation at the end."""
    require_model(path)
    from gcab.classifier.learner import ContinualClassifier
    from gcab.classifier.model_folder import ModelFolder

    folder = ModelFolder(path)
    with folder.locked():
        model = ContinualClassifier.load(folder.path, device)
        yield model, folder
        folder.write(model.save)


class AskFor(argparse.Action):
    """Enables picture formats for this process and for those it starts."""

    def __call__(self, *given: Any) -> None:
        _, namespace, value, _ = given
        ask_for(value)
        setattr(namespace, self.dest, value)


def add_formats(parser: argparse.ArgumentParser) -> None:
    """Add --formats: picture formats to read beside the usual five."""
    meaning = f"read these too: {', '.join(ON_REQUEST)}; beside JPEG, PNG, WebP, GIF and BMP (environment: {VARIABLE})"
    parser.add_argument("--formats", action=AskFor, metavar="NAMES", help=meaning)


def settings_of(texts: Sequence[str], flag: str = "--set", example: str = "training.lr=0.0005") -> dict[str, str]:
    """Parse several KEY=VALUE; the later one wins."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise GcabError(f"{flag} needs KEY=VALUE, such as {example}, not '{text}'.")
        settings[key.strip()] = value.strip()
    return settings
