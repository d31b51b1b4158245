"""The orientation in a photo's EXIF block, read without parsing anything else in there.

Pillow would read every entry, and one small block can hold thousands that all point at the same large value.
"""

import struct

ORIENTATION = 0x0112
UPRIGHT = 1
SHORT = 3
ENTRY = 12  # bytes
PREFIX = b"Exif\0\0"


def orientation(block: bytes) -> int:
    """The orientation, from 1 to 8; 1 where the block has none or an invalid one."""
    block = block.removeprefix(PREFIX)
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return UPRIGHT
    try:
        (directory,) = struct.unpack_from(f"{order}I", block, 4)
        (count,) = struct.unpack_from(f"{order}H", block, directory)
        for index in range(count):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", block, directory + 2 + ENTRY * index)
            if tag == ORIENTATION:
                return value if kind == SHORT and value in range(1, 9) else UPRIGHT
    except struct.error:  # cut short
        pass
    return UPRIGHT
