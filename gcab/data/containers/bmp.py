"""BMP: one header; only pixels that are stored as they are, as Pillow unpacks run lengths one by one in Python."""

import struct

from gcab.data.containers.contents import Contents, DamagedError, UnfitError

OLD_HEADER = 12  # bytes, of OS/2
PLAIN, BIT_FIELDS, BIT_FIELDS_WITH_ALPHA = 0, 3, 6


def examine(content: bytes) -> Contents:
    """The picture of a BMP file, whose rows may run from the top or from the bottom."""
    try:
        (header,) = struct.unpack_from("<I", content, 14)
        if header == OLD_HEADER:
            (width, height), compression = struct.unpack_from("<HH", content, 18), PLAIN
        else:
            width, height = struct.unpack_from("<ii", content, 18)
            (compression,) = struct.unpack_from("<I", content, 30)
    except struct.error:
        raise DamagedError("its header is cut short") from None
    if compression not in (PLAIN, BIT_FIELDS, BIT_FIELDS_WITH_ALPHA):
        raise UnfitError("is a compressed BMP: save it as PNG")
    return Contents("BMP", width, abs(height), content)
