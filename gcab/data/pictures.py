"""From the bytes of a picture file to colours of one size, without torch: a process that only decodes starts fast.

Every picture is turned upright (EXIF), laid on white where it is transparent, shrunk or enlarged (bicubic, antialiased)
until it covers `size`, and cropped to its centre. All of it happens band by band, so beside the decoded picture itself
little memory is used, and the result is what Pillow gives for the whole of it.
"""

import io
import math
import threading
import warnings

from PIL import Image

from gcab.data.containers import bmp, exif, gif, heif, jpeg, png, ppm, tiff, webp
from gcab.data.containers.contents import Bounds, Contents, DamagedError, TooLargeError, UnfitError, animated
from gcab.data.formats import import_heif, is_read, kind_of, refusal
from gcab.errors import GcabError
from gcab.sizes import Size, covered, sides

REDUCING_GAP = 2.0  # Pillow's `reducing_gap`: blocks are averaged down to no less than this multiple of the target
SUPPORT = 2.0  # of the cubic kernel, in pixels of the smaller picture
BAND = 2**20  # pixels that are treated at once
OPENING = threading.Lock()  # guards the warning filters, which all threads share
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Box = tuple[int, int, int, int]  # left, top, right, bottom


def read_picture(contents: Contents, size: Size, label: str) -> Image.Image:
    """The picture in a file that was examined, or the sentence that says why there is none."""
    with load(contents, label, enough_for(size)) as image:
        return brought_to(image, size, orientation_of(image, contents), label)


def enough_for(size: Size) -> int:
    """Pixels a side that a JPEG must at least be decoded to: twice the target, which is then antialiased."""
    return 2 * max(sides(size))


def examine(content: bytes, label: str, bounds: Bounds, enough: int) -> Contents:
    """The file's structure, in time that does not depend on its claims; refused if its pixels would take too much."""
    if not content:
        raise GcabError(f"{label} is empty (0 bytes): remove it or fetch it again.")
    if len(content) > bounds.file_bytes:
        raise TooLargeError(f"{label} has more than {bounds.file_bytes >> 20} MiB: shrink it first.")
    kind = kind_of(content[:64])
    if kind is None:
        raise GcabError(f"{label} is not an image that can be read: remove it or save it as PNG.")
    if not is_read(kind):
        raise GcabError(f"{label} {refusal(kind)}.")
    try:
        contents = _parsed(content, kind, bounds)
        contents.check(bounds, enough)
    except UnfitError as problem:
        raise (TooLargeError if problem.too_large else GcabError)(f"{label} {problem}.") from None
    except DamagedError as problem:
        raise damaged(label, problem) from None
    return contents


def _parsed(content: bytes, kind: str, bounds: Bounds) -> Contents:
    if kind == "JPEG":
        return jpeg.examine(content, bounds)
    if kind in ("AVIF", "HEIF"):
        return heif.examine(content, kind)
    parsers = {"BMP": bmp, "GIF": gif, "PNG": png, "PPM": ppm, "TIFF": tiff, "WEBP": webp}
    return parsers[kind].examine(content)


def load(contents: Contents, label: str, enough: int) -> Image.Image:
    """The decoded picture as it is stored: neither upright nor necessarily RGB."""

    if contents.kind == "HEIF":
        import_heif()
    try:
        with OPENING, warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if contents.scale(enough) > 1:
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # it will be scaled, and was checked
            image = Image.open(io.BytesIO(contents.stream), formats=(contents.kind,))
        if getattr(image, "n_frames", 1) > 1:
            raise animated(getattr(image, "n_frames", 1))
        image.draft(None, (enough, enough))
        image.load()
    except UnfitError as problem:
        raise GcabError(f"{label} {problem}.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise TooLargeError(f"{label} has too many pixels: shrink it first.") from None
    except MemoryError:
        raise TooLargeError(f"{label} needs more memory than there is: shrink it first.") from None
    except Exception as problem:  # Pillow's readers raise almost anything on damaged bytes
        raise damaged(label, problem) from problem
    return image


def orientation_of(image: Image.Image, contents: Contents) -> int:
    """The EXIF orientation: from the file's structure, but for AVIF from Pillow, which combines several boxes."""
    if contents.kind == "AVIF":
        return exif.orientation(image.info.get("exif", b""))
    return contents.orientation


def brought_to(image: Image.Image, size: Size, orientation: int, label: str) -> Image.Image:
    """Crop to the centre and resize, upright and in RGB; equals Pillow's `resize` with a reducing gap."""
    width, height = image.size[::-1] if orientation > 4 else image.size
    rows, columns = sides(size)
    high, wide = covered(height, width, size)
    left, top = (width - wide) / 2, (height - high) / 2
    step = wide / columns
    factor = int(step / REDUCING_GAP) or 1
    reach = (SUPPORT - 0.5) * step if factor > 1 else SUPPORT * max(step, 1.0) + 1
    x, y = max(0, int(left - reach)), max(0, int(top - reach))
    right, bottom = min(width, math.ceil(left + wide + reach)), min(height, math.ceil(top + high + reach))
    reduced = Image.new("RGB", (-(-(right - x) // factor), -(-(bottom - y) // factor)))
    band = factor * max(1, BAND // ((right - x) * factor))
    try:
        for begin in range(y, bottom, band):
            part = _upright(image, (x, begin, right, min(begin + band, bottom)), orientation)
            reduced.paste(_rgb(part, label).reduce(factor), (0, (begin - y) // factor))
    except GcabError:
        raise
    except Exception as problem:  # an odd palette or mode, or no memory left
        raise damaged(label, problem) from problem
    # Which axis is first is a matter of rounding. Versions of Pillow decide differently, so it is not left to them.
    along = ((left - x) / factor, 0, (left + wide - x) / factor, reduced.height)
    narrow = reduced.resize((columns, reduced.height), Image.Resampling.BICUBIC, box=along)
    down = (0, (top - y) / factor, columns, (top + high - y) / factor)
    return narrow.resize((columns, rows), Image.Resampling.BICUBIC, box=down)


def _upright(image: Image.Image, box: Box, orientation: int) -> Image.Image:
    """The part of the upright picture that this box of it shows."""
    left, top, right, bottom = (box[1], box[0], box[3], box[2]) if orientation > 4 else box
    if orientation in (2, 3, 7, 8):
        left, right = image.width - right, image.width - left
    if orientation in (3, 4, 6, 7):
        top, bottom = image.height - bottom, image.height - top
    part = image.crop((left, top, right, bottom))
    return part.transpose(TURNS[orientation]) if orientation in TURNS else part


def _rgb(image: Image.Image, label: str) -> Image.Image:
    if image.mode == "F":
        raise GcabError(f"{label} has floating-point pixels of unknown range: save it with 8 or 16 bits.")
    if image.mode.startswith("I"):
        import numpy as np  # late: few pictures need it, and a process that decodes is to start fast

        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise GcabError(f"{label} has pixel values outside 0..65535: save it with 8 or 16 bits.")
        return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")  # 65535 / 257 = 255
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return image.convert("RGB")


def damaged(label: str, problem: Exception) -> GcabError:
    """The error for a file that cannot be decoded."""
    return GcabError(f"{label} is damaged or cut short ({problem}): remove it or fetch it again.")
