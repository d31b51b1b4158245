"""Names that came from strangers, and sentences that go out to them: no place on this machine is told."""

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
    """A sentence as strangers may read it: of absolute paths, and of these places above all, the last part is left."""
    for place in places:
        sentence = sentence.replace(str(place), place.name)
    return FOLDERS.sub("", OBJECT.sub("the file", sentence))


def normalised(name: str) -> str:
    """Two names that are one on some file system are one here."""
    return unicodedata.normalize("NFC", name).casefold()
