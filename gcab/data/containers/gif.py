"""GIF: a list of blocks, of which the first picture and what makes it transparent are kept.

Source: CompuServe, Graphics Interchange Format, version 89a.
"""

import struct

from gcab.data.containers.contents import Contents, DamagedError, UnfitError, animated

PICTURE, EXTENSION, TRAILER = 0x2C, 0x21, 0x3B
TRANSPARENCY = 0xF9  # the label of an extension
USUAL_BLOCK = 255  # bytes, of which encoders fill all but the last
SPARE_BLOCKS = 4096


def examine(content: bytes) -> Contents:
    """The only picture of a GIF."""
    if len(content) < 13:
        raise DamagedError("its header is cut short")
    width, height, flags = struct.unpack_from("<HHB", content, 6)
    position = 13 + _table(flags)
    head, transparency, picture = content[:position], b"", b""
    steps = SPARE_BLOCKS + 2 * len(content) // USUAL_BLOCK
    frames = 0
    while position < len(content) and content[position] != TRAILER and steps > 0:
        begin, kind = position, content[position]
        if kind == PICTURE:
            frames += 1
            if begin + 10 > len(content):
                raise DamagedError("a picture is cut short")
            left, top, across, down, flags = struct.unpack_from("<4HB", content, begin + 1)
            width, height = max(width, left + across), max(height, top + down)
            position = begin + 10 + _table(flags) + 1  # after the size of its codes
        elif kind == EXTENSION:
            position = begin + 2
        else:
            position = begin + 1
            steps -= 1
            continue  # a stray byte between blocks
        position, steps = _after_blocks(content, position, steps)
        if kind == PICTURE and frames == 1:
            picture = content[begin:position]
        elif content[begin + 1 : begin + 2] == bytes((TRANSPARENCY,)) and not frames:
            transparency = content[begin:position]
    if steps <= 0:
        raise UnfitError("is cut into too many small blocks: save it as PNG")
    if frames > 1:
        raise animated(frames)
    if not frames:
        raise DamagedError("it holds no picture")
    # Pillow keeps the numbers of colours and may make colours of them.
    return Contents("GIF", width, height, head + transparency + picture + b";", bytes_per_pixel=5.0)


def _table(flags: int) -> int:
    """Bytes of a colour table."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(content: bytes, position: int, steps: int) -> tuple[int, int]:
    """The position after a chain of length-prefixed blocks, and the steps that are left."""
    while position < len(content) and steps > 0:
        length = content[position]
        position += 1 + length
        steps -= 1
        if not length:
            break
    return position, steps
