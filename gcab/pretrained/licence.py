"""Under which licence weights may be used, as far as the files beside them say."""

import re
from pathlib import Path

UNKNOWN = "unknown: look before you ship"
NAMES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "LICENCE.md", "COPYING")
LONGEST = 80  # characters that are shown
ENTRY = re.compile(r"^licen[sc]e(_name)?:\s*[\"']?([^\"'\n#\[\]]+)", flags=re.MULTILINE)


def licence_in(folder: Path) -> str:
    """The licence named in the head of a model card (README.md), else the first line of a licence file."""
    card = text_of(folder / "README.md")
    if card.startswith("---"):
        found = {bool(match[1]): match[2].strip() for match in ENTRY.finditer(card.split("\n---", 1)[0])}
        chosen = found.get(True) if found.get(False, "other") == "other" else found[False]
        if chosen or found:
            return shortened(chosen or "other: read its model card")
    for name in NAMES:
        for line in text_of(folder / name).splitlines():
            if line.strip(" #*="):
                return shortened(line.strip(" #*="))
    return UNKNOWN


def text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def shortened(line: str) -> str:
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
