"""JPEG: the segments before the first scan are walked through, and only those that concern the pixels are kept.

Source: ITU-T T.81, annex B. A marker is a byte FF and a code, with any number of further FF before it.
"""

import re
import struct

from gcab.data.containers import exif
from gcab.data.containers.contents import Bounds, Contents, DamagedError, UnfitError

MOST_SEGMENTS = 2_000  # before the first scan: those of metadata hold 64 KiB each
LONGEST_FILL = 1024  # bytes FF in a row among the scans: decoders look at them again and again
MARKER = re.compile(rb"\xff++(.)", re.DOTALL)
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
WITHOUT_LENGTH = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))
END, SCAN, EXIF_SEGMENT, COMMENT = 0xD9, 0xDA, 0xE1, 0xFE
JFIF_SEGMENT, ADOBE_SEGMENT = 0xE0, 0xEE  # say how the colours are to be understood
PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
COEFFICIENT = 2  # bytes


def examine(content: bytes, bounds: Bounds) -> Contents:
    """The picture of a JPEG, also of the kind with further previews inside (MPO)."""
    kept, position, turned = [content[:2]], 2, exif.UPRIGHT
    frame, size = 0, (0, 0)
    components: list[tuple[int, int]] = []  # sampling factors, across and down
    for _ in range(MOST_SEGMENTS):
        code, begin, end = _segment(content, position)
        if code == SCAN:
            break
        body = content[begin + 2 : end]
        if code in FRAMES:
            frame, (size, components) = code, _frame(body)
        if code == EXIF_SEGMENT and body.startswith(exif.PREFIX):
            turned = exif.orientation(body)
        metadata = 0xE0 <= code <= 0xEF and code not in (JFIF_SEGMENT, ADOBE_SEGMENT)
        if code not in WITHOUT_LENGTH and code != COMMENT and not metadata:
            kept.append(b"\xff%c" % code + content[begin:end])
        position = end
    else:
        raise UnfitError(f"has more than {MOST_SEGMENTS} segments before its pixels: save it again as a plain JPEG")
    scans = content.count(b"\xff\xda", begin - 2)
    if scans > bounds.scans:
        raise UnfitError(f"has more than {bounds.scans} scans: save it again as a plain JPEG")
    last = content.find(b"\xff\xd9", begin)
    if content.find(b"\xff" * LONGEST_FILL, begin, last if last >= 0 else len(content)) >= 0:
        raise UnfitError("has long stretches of padding among its pixels: save it again as a plain JPEG")
    return Contents(
        "JPEG",
        *size,
        b"".join((*kept, memoryview(content)[begin - 2 :])),
        turned,
        # Several scans need all coefficients of the whole picture, whatever the scale.
        bytes_per_source_pixel=_samples(components) * COEFFICIENT if frame in PROGRESSIVE or scans > 1 else 0.0,
        scalable=True,
    )


def _segment(content: bytes, position: int) -> tuple[int, int, int]:
    """The next marker's code, and where what belongs to it begins and ends; what lies between markers is skipped."""
    marker = MARKER.search(content, position)
    if marker is None:
        raise DamagedError("it ends before its pixels")
    code, begin = marker[1][0], marker.end()
    if code in WITHOUT_LENGTH:
        return code, begin, begin
    if code == END or begin + 2 > len(content):
        raise DamagedError("it ends before its pixels")
    (length,) = struct.unpack_from(">H", content, begin)
    return code, begin, begin + max(2, length)


def _frame(body: bytes) -> tuple[tuple[int, int], list[tuple[int, int]]]:
    try:
        _, height, width, count = struct.unpack_from(">BHHB", body)
        sampling = [body[6 + 3 * index + 1] for index in range(count)]
    except (struct.error, IndexError):
        raise DamagedError("its frame is cut short") from None
    return (width, height), [(factors >> 4, factors & 15) for factors in sampling]


def _samples(components: list[tuple[int, int]]) -> float:
    """Samples for each pixel: 3 where the colours are as fine as the brightness, 1.5 in most photos."""
    across = max((factor for factor, _ in components), default=1) or 1
    down = max((factor for _, factor in components), default=1) or 1
    return sum(horizontal * vertical for horizontal, vertical in components) / (across * down)
