"""Picture formats: five that everyone uses, and others where they are asked for.

Every further decoder is one more that malicious files can attack, and some of Pillow's take minutes or start other
programs; so none is used unless the user has named it with --formats, or in the environment as GCAB_FORMATS.
"""

import os
import re
from collections.abc import Mapping

from gcab.errors import GcabError, unknown

VARIABLE = "GCAB_FORMATS"
USUAL = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
ON_REQUEST = {"avif": "AVIF", "heic": "HEIF", "ppm": "PPM", "tiff": "TIFF"}  # the user's name -> Pillow's
SUFFIXES: Mapping[str, str] = {
    ".avif": "AVIF",
    ".bmp": "BMP",
    ".gif": "GIF",
    ".heic": "HEIF",
    ".heif": "HEIF",
    ".jfif": "JPEG",
    ".jpe": "JPEG",
    ".jpeg": "JPEG",
    ".jpg": "JPEG",
    ".pbm": "PPM",
    ".pgm": "PPM",
    ".png": "PNG",
    ".ppm": "PPM",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
}
SIGNATURES = {
    "JPEG": re.compile(rb"\xff\xd8\xff"),
    "PNG": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "WEBP": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    "GIF": re.compile(rb"GIF8[79]a"),
    "BMP": re.compile(rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", re.DOTALL),  # with a known size of its header
    "TIFF": re.compile(rb"II[*+]\0|MM\0[*+]"),
    "PPM": re.compile(rb"P[1-6][\s#]"),
    "AVIF": re.compile(rb".{4}ftyp(?:avif|avis|mif1.{4}(?:.{4}){0,8}avif)", re.DOTALL),
    "HEIF": re.compile(rb".{4}ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)", re.DOTALL),
}
LONGEST_SIGNATURE = 64  # bytes from the beginning that tell the kind


def kind_of(beginning: bytes) -> str | None:
    """The kind of a file by how it begins, whether it is read or not; None for what is no picture."""
    return next((kind for kind, signature in SIGNATURES.items() if signature.match(beginning)), None)


def asked_for() -> tuple[str, ...]:
    """The kinds named in the environment, by the user's names."""
    names = os.environ.get(VARIABLE, "").lower().replace(",", " ").split()
    for name in names:
        if name not in ON_REQUEST:
            raise unknown("picture format", name, ON_REQUEST)
    return tuple(names)


def ask_for(names: str) -> None:
    """Read these kinds too, here and in every process that is started from here."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = names
    try:
        if "heic" in asked_for():
            import_heif()
    except GcabError:
        os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})
        raise


def import_heif() -> None:
    """Register the plugin pillow-heif, which Pillow needs for HEIC."""
    try:
        import pillow_heif
    except ImportError:
        raise GcabError("HEIC photos need one more package: pip install 'gcab[heic]'.") from None
    pillow_heif.register_heif_opener(thumbnails=False)


def is_read(kind: str) -> bool:
    """Whether files of this kind are opened at all."""
    return kind in USUAL or kind in [ON_REQUEST[name] for name in asked_for()]


def refusal(kind: str) -> str:
    """The reason, after the file's name, why a kind that was not asked for is refused."""
    name = next(name for name, pillow in ON_REQUEST.items() if pillow == kind)
    return f"is {name.upper()}, which is read only on request: add --formats {name} or save it as JPEG or PNG"
