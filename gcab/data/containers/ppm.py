"""PBM, PGM and PPM, read only where they are asked for: the binary kinds with a short head.

Pillow reads the plain kinds, comments, and any but 256 levels number by number in Python.
"""

import re

from gcab.data.containers.contents import Contents, UnfitError

BLANK = rb"(?:\s|#[^\n]{0,1000}\n)"
HEAD = re.compile(rb"P([4-6])" + BLANK + rb"{1,40}+(\d{1,7})" + BLANK + rb"{1,40}+(\d{1,7})(?:\s{1,40}(\d{1,5}))?\s")
LONGEST_HEAD = 4096
BITMAP, GREY = b"4", b"5"


def examine(content: bytes) -> Contents:
    """The picture of a binary file of this family."""
    head = HEAD.match(content[:LONGEST_HEAD])
    if head is None or (head[1] != BITMAP and head[4] is None):
        raise UnfitError("is a PPM of text, or one with a long or damaged head: save it as PNG")
    levels = (b"255", b"65535") if head[1] == GREY else (b"255",)
    if head[1] != BITMAP and head[4] not in levels:
        raise UnfitError(f"is a PPM with {int(head[4]) + 1} levels, which are read from PNG only: save it as PNG")
    return Contents("PPM", int(head[2]), int(head[3]), content)
