"""AVIF and HEIC, read only where they are asked for: boxes inside boxes, of which one names the size.

Source: ISO/IEC 14496-12 (boxes) and 23008-12 (ispe, the spatial extents of an item).
"""

import struct

from gcab.data.containers.contents import Contents, DamagedError, UnfitError

MOST_EXTENTS = 1_000  # a photo of tiles has a few
SEARCHED = 2**20  # bytes: the description of the items comes first
BYTES_PER_PIXEL = 16.0  # of the decoder's planes, which may have 12 bits, and of the colours made of them


def examine(content: bytes, kind: str) -> Contents:
    """The size of the largest item; both plugins apply the orientation by themselves."""
    head, place = content[:SEARCHED], 0
    sizes: list[tuple[int, int]] = []
    while (place := head.find(b"ispe", place)) >= 0 and place + 16 <= len(head):
        if len(sizes) == MOST_EXTENTS:
            raise UnfitError("is made of too many parts: save it as JPEG")
        sizes.append(struct.unpack_from(">II", head, place + 8))
        place += 4
    if not sizes:
        raise DamagedError("it names no size")
    width, height = max(sizes, key=lambda size: size[0] * size[1])
    return Contents(kind, width, height, content, bytes_per_pixel=BYTES_PER_PIXEL)
