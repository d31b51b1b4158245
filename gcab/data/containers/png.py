"""PNG: a list of chunks, of which only those with pixels and colours are kept.

Source: ISO/IEC 15948, and acTL of animated PNG.
"""

import struct

from gcab.data.containers import exif
from gcab.data.containers.contents import Contents, DamagedError, UnfitError, animated

MOST_CHUNKS = 65_536  # encoders write 8 KiB of pixels and more in each
OUTSIDE = 12  # bytes of a chunk that are not its content: length, name, checksum
KEPT = frozenset((b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"))
GREY, PALETTE = 0, 3


def examine(content: bytes) -> Contents:
    """The picture of a PNG; a damaged chunk that is kept is left for the decoder to find."""
    if content[12:16] != b"IHDR" or len(content) < 29:
        raise DamagedError("its header is cut short")
    width, height, depth, colour = struct.unpack_from(">IIBB", content, 16)
    parts, turned = [memoryview(content)[:8]], exif.UPRIGHT
    position, chunks = 8, 0
    while position + 8 <= len(content):
        chunks += 1
        if chunks > MOST_CHUNKS:
            raise UnfitError(f"has more than {MOST_CHUNKS} chunks: save it again as a plain PNG")
        length, name = struct.unpack_from(">I4s", content, position)
        end = position + OUTSIDE + length
        if name in KEPT:
            parts.append(memoryview(content)[position:end])
        elif name == b"eXIf":
            turned = exif.orientation(content[position + 8 : end - 4])
        elif name == b"acTL" and (frames := int.from_bytes(content[position + 8 : position + 12])) > 1:
            raise animated(frames)
        position = end
        if name == b"IEND":
            break
    compact = {GREY: 2.0 if depth == 16 else 1.0, PALETTE: 1.0}
    return Contents("PNG", width, height, b"".join(parts), turned, compact.get(colour, 4.0))
