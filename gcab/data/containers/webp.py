"""WebP: a RIFF list of chunks, of which only the pixels, their transparency and the canvas are kept.

Source: RFC 9649.
"""

import struct

from gcab.data.containers import exif
from gcab.data.containers.contents import Contents, DamagedError, UnfitError, animated

MOST_CHUNKS = 10_000
KEPT = frozenset((b"VP8 ", b"VP8L", b"VP8X", b"ALPH"))
HAS_ALPHA = 0x10  # of the flags of VP8X: the others speak of chunks that are not kept
BYTES_PER_PIXEL = 16.0  # the decoder's canvas, the one before it, its own pixels, and Pillow's


def examine(content: bytes) -> Contents:
    """The only picture of a WebP file."""
    parts: list[bytes] = []
    sizes: list[tuple[int, int]] = []
    position, frames, turned = 12, 0, exif.UPRIGHT
    for _ in range(MOST_CHUNKS):
        if position + 8 > len(content):
            break
        name, length = struct.unpack_from("<4sI", content, position)
        body = content[position + 8 : position + 8 + length]
        if name in KEPT:
            sizes += _size(name, body)
            if name == b"VP8X" and body:
                body = bytes((body[0] & HAS_ALPHA,)) + body[1:]
            parts.append(struct.pack("<4sI", name, length) + body + b"\0" * (len(body) % 2))
        elif name == b"EXIF":
            turned = exif.orientation(body)
        frames += name == b"ANMF"
        position += 8 + length + length % 2
    else:
        raise UnfitError(f"has more than {MOST_CHUNKS} chunks: save it again")
    if frames:
        raise animated(frames)
    if not sizes:
        raise DamagedError("it holds no picture")
    kept = b"".join(parts)
    width, height = max(width for width, _ in sizes), max(height for _, height in sizes)
    stream = struct.pack("<4sI4s", b"RIFF", 4 + len(kept), b"WEBP") + kept
    return Contents("WEBP", width, height, stream, turned, BYTES_PER_PIXEL)


def _size(name: bytes, body: bytes) -> list[tuple[int, int]]:
    """Width and height as a chunk claims them."""
    if name == b"ALPH":
        return []
    if len(body) < 10:
        raise DamagedError("a chunk is cut short")
    if name == b"VP8X":
        return [(1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little"))]
    if name == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        return [(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))]
    width, height = struct.unpack_from("<HH", body, 6)
    return [(width & 0x3FFF, height & 0x3FFF)]
