"""Sanitising names from clients, and sentences that go out to them: no path of this machine is told."""

import re
import unicodedata
from pathlib import Path

LONGEST_NAME = 120
FOLDERS = re.compile(r"(?<![\w.:/\\])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\"/\\:;,()<>]+[/\\])*")  # of an absolute path
OBJECT = re.compile(r"<[^<>]* at 0x[0-9a-fA-F]+>")


def plain_name(name: str | None) -> str:
    """A client's file name as it may stand in a sentence: the last part, printable, not too long."""
    last = re.split(r"[/\\]", name or "")[-1]
    printable = "".join(character for character in last if character.isprintable()).strip()
    return printable[:LONGEST_NAME] or "the image"


def without_paths(sentence: str, *places: Path) -> str:
    """A sentence in which absolute paths, and these places above all, are cut down to their last part."""
    for place in places:
        sentence = sentence.replace(str(place), place.name)
    return FOLDERS.sub("", OBJECT.sub("the file", sentence))


def normalised(name: str) -> str:
    """A name in canonical form: names that are one on some file system are equal."""
    return unicodedata.normalize("NFC", name).casefold()
