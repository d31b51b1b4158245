"""TIFF, read only where it is asked for: its first directory must be small and its only one.

Source: TIFF revision 6.0, section 2; BigTIFF. Pillow makes a Python number of every entry's every value.
"""

import struct
from dataclasses import dataclass

from gcab.data.containers.contents import Contents, DamagedError, UnfitError, animated

MOST_ENTRIES = 512
MOST_NUMBERS = 65_536  # of one entry: the strips or tiles of a picture
MOST_PAGES = 1_000  # that are counted
WIDTH, HEIGHT = 256, 257  # tags
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}  # bytes
BYTES = frozenset((1, 2, 6, 7))  # types whose values stay one piece
BYTES_PER_PIXEL = 12.0  # a strip or a turned copy beside the pixels


@dataclass(frozen=True)
class Layout:
    """How a directory is written: the numbers' byte order and their widths."""

    order: str
    count: str
    entry: str
    offset: str

    def read(self, code: str, content: bytes, position: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self.order + code, content, position)
        except (struct.error, OverflowError):
            raise DamagedError("its directory is cut short") from None


def examine(content: bytes) -> Contents:
    """The only page of a TIFF file; Pillow turns it upright by itself."""
    order = "<" if content[:2] == b"II" else ">"
    big = content[2:4] in (b"+\0", b"\0+")
    layout = Layout(order, "Q", "HHQ", "Q") if big else Layout(order, "H", "HHI", "I")
    (first,) = layout.read(layout.offset, content, 8 if big else 4)
    numbers = _first_directory(content, layout, first)
    pages = _pages(content, layout, first)
    if pages > 1:
        raise animated(pages)
    return Contents("TIFF", numbers.get(WIDTH, 0), numbers.get(HEIGHT, 0), content, bytes_per_pixel=BYTES_PER_PIXEL)


def _first_directory(content: bytes, layout: Layout, position: int) -> dict[int, int]:
    """The entries that are one number; refused if any is larger than a picture needs."""
    (count,) = layout.read(layout.count, content, position)
    if count > MOST_ENTRIES:
        raise UnfitError(f"has more than {MOST_ENTRIES} entries in its directory: save it as PNG")
    start, head = position + struct.calcsize(layout.order + layout.count), struct.calcsize(layout.order + layout.entry)
    step = head + struct.calcsize(layout.order + layout.offset)
    numbers, total = {}, 0
    for index in range(count):
        tag, kind, values = layout.read(layout.entry, content, start + step * index)
        total += values * SIZES.get(kind, 1)
        if (kind not in BYTES and values > MOST_NUMBERS) or total > len(content) + 2**20:
            raise UnfitError(f"has more than {MOST_NUMBERS} parts or a damaged directory: save it as PNG")
        if values == 1 and kind in (3, 4, 16):
            (numbers[tag],) = layout.read({3: "H", 4: "I", 16: "Q"}[kind], content, start + step * index + head)
    return numbers


def _pages(content: bytes, layout: Layout, position: int) -> int:
    """Directories that follow each other, as far as they lead forward to places not seen yet."""
    seen: set[int] = set()
    while position and position not in seen and len(seen) < MOST_PAGES:
        seen.add(position)
        (count,) = layout.read(layout.count, content, position)
        step = struct.calcsize(layout.order + layout.entry) + struct.calcsize(layout.order + layout.offset)
        after = position + struct.calcsize(layout.order + layout.count) + count * step
        try:
            (position,) = layout.read(layout.offset, content, after)
        except DamagedError:  # many writers leave the last pointer out
            break
    return len(seen)
