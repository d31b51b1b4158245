"""One photo from a stranger: what its header asks for is checked before a pixel is decoded."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError
from torch import Tensor

from gcab.classifier.photos import NAMED
from gcab.data.decode import FORMATS, read_image
from gcab.errors import GcabError
from gcab.serve.limits import Limits, RequestError
from gcab.serve.wording import without_paths

SCAN = b"\xff\xda"  # begins a scan of a JPEG; never part of one
CHUNK = 2**20


def decode_photo(file: IO[bytes], name: str, size: int, limits: Limits) -> Tensor:
    """(3, size, size) bytes, or `RequestError`."""
    check_photo(file, name, limits)
    file.seek(0)
    try:
        return read_image(file, size, name)
    except GcabError as problem:
        raise RequestError(422, without_paths(str(problem))) from None


def check_photo(file: IO[bytes], name: str, limits: Limits) -> None:
    """Refuse what would take long or much memory: too many pixels, pages of a TIFF or GIF, scans of a JPEG."""
    if not file.read(1):
        raise RequestError(422, f"{name} is empty (0 bytes): send another.")
    file.seek(0)
    try:
        with Image.open(file, formats=FORMATS) as image:
            pixels, kind = image.width * image.height, image.format
            several = kind in ("GIF", "TIFF") and pixels <= limits.pixels and _has_second_page(image)
    except UnidentifiedImageError:
        raise RequestError(422, f"{name} is not an image that can be read: save it as JPEG or PNG.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise too_large(name, limits) from None
    except Exception:  # Pillow's readers raise almost anything on damaged bytes
        raise damaged(name) from None
    if pixels > limits.pixels:
        raise too_large(name, limits)
    if several:
        raise RequestError(422, f"{name} is animated or has several pages: save one of them as PNG.")
    if kind in ("JPEG", "MPO") and _scans(file) > limits.scans:
        raise RequestError(422, f"{name} has more than {limits.scans} scans: save it again as a plain JPEG.")


def check_readable(photos: Mapping[Path, str], size: int) -> None:
    """Decode every file once: only here are the names known that their owner gave them."""
    unreadable = []
    for path, name in photos.items():
        try:
            read_image(path, size, name)
        except GcabError as problem:
            unreadable.append(without_paths(str(problem)).rstrip("."))
    if unreadable:
        more = f"; and {len(unreadable) - NAMED} more" if len(unreadable) > NAMED else ""
        raise RequestError(
            422,
            f"{len(unreadable)} of {len(photos)} photos cannot be read, so nothing was learned "
            f"({'; '.join(unreadable[:NAMED])}{more}): take them out of the zip and send it again.",
        )


def _has_second_page(image: Image.Image) -> bool:
    """Looks one page ahead, where counting them could take minutes."""
    try:
        image.seek(1)
    except EOFError:
        return False
    return True


def _scans(file: IO[bytes]) -> int:
    file.seek(0)
    count, last = 0, b""
    while chunk := file.read(CHUNK):
        count += (last + chunk).count(SCAN)
        last = chunk[-1:]
    return count


def too_large(name: str, limits: Limits) -> RequestError:
    return RequestError(413, f"{name} has more than {limits.pixels / 1e6:g} million pixels: shrink it first.")


def damaged(name: str) -> RequestError:
    return RequestError(422, f"{name} is damaged or cut short: send it again or save it as PNG.")
