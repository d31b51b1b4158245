"""What is known of a picture from its file's structure alone, before any decoder has seen a byte of it."""

from dataclasses import dataclass

from gcab.errors import GcabError

BYTES_PER_ROW = 32  # Pillow keeps pointers for every row: a picture of one column is nearly nothing else
SCALES = (8, 4, 2, 1)  # at which a JPEG can be decoded
LARGE, EMPTY = 4_000_000, 4096  # pixels, and pixels for a byte of the file: with more of both there is nothing to see


class TooLargeError(GcabError):
    """A picture that would take more memory or time than it may."""


class UnfitError(Exception):
    """Why a file is refused: the part of the sentence after the file's name, which is known elsewhere."""

    def __init__(self, reason: str, too_large: bool = False) -> None:
        super().__init__(reason)
        self.too_large = too_large


class DamagedError(Exception):
    """A file that breaks the rules of its format."""


@dataclass(frozen=True)
class Bounds:
    """Resource limits for decoding one picture; the defaults are for a user's own files."""

    file_bytes: int = 256 * 2**20
    pixels: int = 64_000_000  # that are decoded: a JPEG may have many more and be scaled on the way
    memory: int = 1024 * 2**20  # bytes while it is decoded, those of the file among them
    scans: int = 100  # of a progressive JPEG: a small file can ask for the same pixels a million times


@dataclass(frozen=True)
class Contents:
    """The part of a file that makes up its pixels, and what they will cost."""

    kind: str  # as Pillow names the format
    width: int
    height: int
    stream: bytes  # the file without anything that is not needed for its pixels
    orientation: int = 1  # of EXIF: how the pixels are to be turned
    bytes_per_pixel: float = 4.0  # of a decoded pixel, with whatever its decoder holds beside it
    bytes_per_source_pixel: float = 0.0  # that no scaling spares: the coefficients of a progressive JPEG
    scalable: bool = False

    def scale(self, enough: int) -> int:
        """By how much it can be scaled while it is decoded and still have `enough` pixels a side, as Pillow chooses."""
        if not self.scalable:
            return 1
        room = min(self.width // enough, self.height // enough)
        return next(scale for scale in SCALES if scale <= max(1, room))

    def check(self, bounds: Bounds, enough: int) -> None:
        """Raise an error for a picture that would exceed the limits, judged by what its header claims."""
        if self.width < 1 or self.height < 1:
            raise DamagedError(f"it claims {self.width} x {self.height} pixels")
        scale = self.scale(enough)
        width, height = -(-self.width // scale), -(-self.height // scale)
        if width * height > bounds.pixels:
            raise UnfitError(f"has more than {bounds.pixels / 1e6:g} million pixels: shrink it first", too_large=True)
        if width * height > max(LARGE, EMPTY * len(self.stream)):
            raise UnfitError(
                f"is {self.width} x {self.height} pixels of nothing in {len(self.stream)} bytes: it is no photo",
                too_large=True,
            )
        rows = height * (width * self.bytes_per_pixel + BYTES_PER_ROW)
        copies = 2 * len(self.stream)  # some decoders want all bytes at once
        if rows + self.width * self.height * self.bytes_per_source_pixel + copies > bounds.memory:
            needed = f"needs more than {bounds.memory >> 20} MiB of memory ({self.width} x {self.height} pixels)"
            raise UnfitError(f"{needed}: shrink it first", too_large=True)


def animated(frames: int) -> UnfitError:
    """The error for a file with several frames, of which none can be chosen automatically."""
    return UnfitError(f"is animated or has several pages ({frames}): save one of them as PNG")
