"""What `gcab predict` prints: a table for people, JSON lines or CSV for programs; line by line, as answers come."""

import csv
import io
import json
from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from gcab.terminal import visible

if TYPE_CHECKING:
    from gcab.classifier.model import Classifier
    from gcab.classifier.prediction import Prediction

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would run
FLAG = "none of these?"
MOST_LISTED = 1000  # unreadable files named after a table
LONGEST_NAME, SHORTEST_FILE, LONGEST_FILE = 32, 16, 48
HEADING = ("probability", "task", "unknown")  # each right-aligned under its word


class Format(ABC):
    """Writes one prediction after the other."""

    def __init__(self, console: Console, errors: Console, model: "Classifier", top: int, limit: float) -> None:
        self.console, self.errors, self.model, self.top, self.limit = console, errors, model, top, limit

    @abstractmethod
    def write(self, prediction: "Prediction") -> None:
        """Print one image's answer now."""

    def end(self, done: int, failed: int) -> None:
        """Say what did not work."""
        if failed:
            said(self.errors, f"gcab: {failed} of {done} could not be read; each is listed with its error.")

    def flagged(self, prediction: "Prediction") -> bool:
        return prediction.unknown is not None and prediction.unknown >= self.limit

    def put(self, text: str) -> None:
        """Write and flush, so that pipes see each line at once; names are escaped."""
        self.console.file.write(self.encodable(text, "backslashreplace"))
        self.console.file.flush()

    def encodable(self, text: str, otherwise: str) -> str:
        """Text that the output's encoding can hold: a file's name may be bytes that are no text."""
        return text.encode(self.console.encoding, otherwise).decode(self.console.encoding)


class JsonLines(Format):
    """An object per image."""

    def write(self, prediction: "Prediction") -> None:
        self.put(json.dumps(self.fields(prediction)) + "\n")

    def fields(self, prediction: "Prediction") -> dict[str, Any]:
        if prediction.error is not None:
            return {"file": prediction.file, "error": prediction.error}
        guesses = [
            {"class": guess.label, "probability": round(guess.probability, 6), "task": guess.task}
            for guess in prediction.top
        ]
        unknown = None if prediction.unknown is None else round(prediction.unknown, 4)
        return {"file": prediction.file, "top": guesses, "unknown": unknown, "flagged": self.flagged(prediction)}


class Csv(Format):
    """A row per image; cells that a spreadsheet would run as a formula begin with a '."""

    def __init__(self, console: Console, errors: Console, model: "Classifier", top: int, limit: float) -> None:
        super().__init__(console, errors, model, top, limit)
        ranks = [f"{name}_{rank}" for rank in range(1, top + 1) for name in ("class", "probability", "task")]
        self.row("file", "unknown", "flagged", *ranks, "error")

    def write(self, prediction: "Prediction") -> None:
        if prediction.error is not None:
            self.row(prediction.file, *[""] * (2 + 3 * self.top), prediction.error)
            return
        guesses = [(str(guess.label), f"{guess.probability:.6f}", str(guess.task)) for guess in prediction.top]
        flagged = str(self.flagged(prediction)).lower()
        unknown = "" if prediction.unknown is None else f"{prediction.unknown:.4f}"
        self.row(prediction.file, unknown, flagged, *chain.from_iterable(guesses), "")

    def row(self, *cells: str) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([harmless(cell) for cell in cells])
        self.put(line.getvalue())


class TableLines(Format):
    """A line per class, the image's name before the first; columns keep their width, so no line waits for the next."""

    def __init__(self, console: Console, errors: Console, model: "Classifier", top: int, limit: float) -> None:
        super().__init__(console, errors, model, top, limit)
        longest = max(cell_len(visible(str(label))) for label in model.classes)
        self.name_width = min(max(longest, len("class")), LONGEST_NAME)
        others = self.name_width + sum(len(word) + 2 for word in HEADING) + len(FLAG) + 4
        room = console.width - others if console.is_terminal else LONGEST_FILE
        self.file_width = max(SHORTEST_FILE, min(room, LONGEST_FILE))
        self.unreadable: list[str] = []
        self.begun = False  # a table without a row has no heading

    def write(self, prediction: "Prediction") -> None:
        if prediction.error is not None:
            self.unreadable += [prediction.error] if len(self.unreadable) < MOST_LISTED else []
            return
        if not self.begun:
            self.row("file", "class", HEADING, "bold")
            self.begun = True
        unknown = "-" if prediction.unknown is None else f"{prediction.unknown:.2f}"
        for rank, guess in enumerate(prediction.top):
            figures = (f"{guess.probability:.1%}", str(guess.task), unknown)
            if rank == 0:
                flag = FLAG if self.flagged(prediction) else ""
                self.row(visible(prediction.file), visible(str(guess.label)), figures, "", flag)
            else:
                self.row("", visible(str(guess.label)), (*figures[:2], ""), "dim")

    def end(self, done: int, failed: int) -> None:
        if failed:
            said(self.errors, f"gcab: {failed} of {done} could not be read:")
        for sentence in self.unreadable:
            said(self.errors, f"  {sentence}")
        if failed > len(self.unreadable):
            said(self.errors, f"  and {failed - len(self.unreadable)} more; --json lists all.")
        if not self.model.calibration.tells_unknown and done > failed:
            photos = self.model.calibration.images
            why = f"too few photos were held out ({photos})" if photos else "its last change had no held-out photos"
            said(self.errors, f"gcab: nothing is flagged as unknown: {why}. A lesson with some measures it.")

    def row(self, file: str, name: str, figures: tuple[str, ...], style: str, flag: str = "") -> None:
        cut = self.console.is_terminal  # a file or another program gets every name whole
        cells = [fitted(file, self.file_width, cut, from_left=True), fitted(name, self.name_width, cut)]
        cells += [figure.rjust(len(word)) for figure, word in zip(figures, HEADING, strict=True)]
        text = Text(self.encodable("  ".join(cells).rstrip(), "replace"), style=style)
        self.console.print(text.append(f"  {flag}" if flag else "", style="yellow"), soft_wrap=True)


FORMATS: dict[str, type[Format]] = {"json": JsonLines, "csv": Csv, "table": TableLines}


def harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def fitted(text: str, width: int, cut: bool, from_left: bool = False) -> str:
    """Padded to a width, or truncated if `cut`: the end of a path and the beginning of a name say most."""
    if cell_len(text) <= width or not cut:
        return text + " " * (width - cell_len(text))
    if not from_left:
        return set_cell_size(text, width - 1) + "…"
    while cell_len(text) > width - 1:
        text = text[1:]
    return set_cell_size("…" + text, width)


def said(errors: Console, sentence: str) -> None:
    errors.print(Text(visible(sentence)), soft_wrap=True)
