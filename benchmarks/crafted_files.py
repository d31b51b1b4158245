"""Picture files made to hold a decoder: much work or memory for few bytes, each kind with a name."""

import io
import random
import struct
import zlib
from collections.abc import Callable

from PIL import Image

Maker = Callable[[int], bytes]  # from about how many bytes it may have


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, *chunks: bytes, data: bytes = b"", colour: int = 2) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def saved(kind: str, size: tuple[int, int] = (64, 64), **options: object) -> bytes:
    stream = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(stream, kind, **options)
    return stream.getvalue()


def repeated(part: bytes, count: int) -> bytes:
    return part * max(1, count // len(part))


def jpeg_with(at: bytes, added: bytes) -> bytes:
    """A small JPEG with bytes put in before the first of the given ones."""
    before, found, after = saved("JPEG").partition(at)
    return before + added + found + after


def padded_scan(count: int) -> bytes:
    whole = saved("JPEG")
    return whole[: len(whole) // 2] + b"\xff" * count + whole[len(whole) // 2 :]


def exif_of_one_value(_: int) -> bytes:
    """Thousands of entries that all point at the same 60 KiB."""
    entries = b"".join(struct.pack("<HHII", 0x9000 + index % 999, 7, 40_000, 0) for index in range(1600))
    block = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 1600) + entries + bytes(44_000)
    return jpeg_with(b"\xff\xdb", b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block)


def tiff_of_strips(count: int) -> bytes:
    strips = count // 8
    entries = [
        (256, 4, 1, 1),
        (257, 4, 1, strips),
        (258, 3, 1, 8),
        (262, 3, 1, 1),
        (273, 4, strips, 200),
        (277, 3, 1, 1),
        (278, 4, 1, 1),
        (279, 4, strips, 200 + 4 * strips),
    ]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    return (b"II*\0\x08\0\0\0" + directory).ljust(200, b"\0") + bytes(8 * strips)


def webp_canvas(_: int) -> bytes:
    inside = saved("WEBP", (16, 16), lossless=True)[12:]
    canvas = struct.pack("<4sI4x", b"VP8X", 10) + (16382).to_bytes(3, "little") * 2
    body = b"WEBP" + canvas + inside
    return b"RIFF" + struct.pack("<I", len(body)) + body


def one_colour(kind: str, size: tuple[int, int], **options: object) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size).save(stream, kind, **options)
    return stream.getvalue()


def bmp_of_runs(count: int) -> bytes:
    pixels = repeated(b"\x01\x07", count)
    header = struct.pack("<IiiHHIIiiII", 40, 5000, 5000, 1, 8, 1, len(pixels), 0, 0, 256, 0)
    return struct.pack("<2sIHHI", b"BM", 0, 0, 0, 1078) + header + bytes(1024) + pixels


def gif_of_small_blocks(count: int) -> bytes:
    whole = saved("GIF")
    return whole[:13] + whole[13 : 13 + 768] + b"!\xfe" + repeated(b"\x01x", count) + b"\0" + whole[13 + 768 :]


def jpeg_of_scans(count: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (2000, 2000)).save(stream, "JPEG", progressive=True)
    whole = stream.getvalue()
    last = whole.rindex(b"\xff\xda")
    return whole[:-2] + repeated(whole[last:-2], min(count, 2**20)) + b"\xff\xd9"


def noise(count: int) -> bytes:
    return random.Random(count).randbytes(min(count, 2**20))


def cut(kind: str) -> Maker:
    return lambda _: saved(kind, (300, 300))[:-5000]


KINDS: dict[str, Maker] = {
    "PNG of empty chunks": lambda count: png(8, 8, repeated(png_chunk(b"teSt", b""), count)),
    "PNG of text chunks": lambda count: png(8, 8, repeated(png_chunk(b"tEXt", b"a\0b"), count)),
    "PNG of packed texts": lambda count: png(
        8, 8, repeated(png_chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**7), 9)), count // 4)
    ),
    "PNG of empty pixel chunks": lambda count: png(8, 8, repeated(png_chunk(b"IDAT", b""), count)),
    "PNG of one column": lambda _: png(1, 25_000_000, data=zlib.compress(bytes(50_000_000), 9), colour=0),
    "PNG without pixels": lambda _: png(5000, 5000, data=zlib.compress(b"0")),
    "PNG with a large EXIF": lambda count: png(8, 8, png_chunk(b"eXIf", b"MM\0*\0\0\0\x08\xff\xff" + bytes(count))),
    "JPEG padded before its frame": lambda count: jpeg_with(b"\xff\xc0", b"\xff" * count),
    "JPEG with junk before its frame": lambda count: jpeg_with(b"\xff\xc0", b"\x01" * count),
    "JPEG padded in its scan": padded_scan,
    "JPEG of small segments": lambda count: jpeg_with(b"\xff\xc0", repeated(b"\xff\xfe\0\x02", count)),
    "JPEG of one EXIF value": exif_of_one_value,
    "JPEG of many scans": jpeg_of_scans,
    "JPEG cut short": cut("JPEG"),
    "PNG cut short": cut("PNG"),
    "WebP that claims a canvas": webp_canvas,
    "WebP of one colour": lambda _: one_colour("WEBP", (8000, 6000), lossless=True, method=0),
    "WebP as large as allowed": lambda _: one_colour("WEBP", (4050, 3100), lossless=True, method=0),
    "PNG as large as allowed": lambda _: one_colour("PNG", (5000, 5000)),
    "JPEG as large as allowed": lambda _: one_colour("JPEG", (7200, 3200), progressive=True),
    "GIF of small blocks": gif_of_small_blocks,
    "BMP of runs": bmp_of_runs,
    "TIFF of strips": tiff_of_strips,
    "PPM of comments": lambda count: b"P6\n" + repeated(b"#\n", count) + b"1 1 255\n...",
    "PPM of text": lambda count: b"P3 1500 1500 255\n" + repeated(b"1 ", count),
    "noise": noise,
    "nothing": lambda _: b"",
}
