"""Every kind of picture becomes the right colours, and the band-wise way gives what Pillow gives for the whole."""

import io
import math
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps, features

from gcab.data.containers.contents import Bounds, TooLargeError
from gcab.data.containers.exif import orientation
from gcab.data.pictures import enough_for, examine, read_picture
from gcab.errors import GcabError
from gcab.sizes import Size, sides

NOISE = np.random.default_rng(0)


def file_of(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def square(content: bytes, size: Size, bounds: Bounds | None = None) -> np.ndarray[Any, Any]:
    contents = examine(content, "it", bounds or Bounds(), enough_for(size))
    return np.asarray(read_picture(contents, size, "it")).astype(int)


def whole(content: bytes, size: Size) -> np.ndarray[Any, Any]:
    """The definition: upright, in RGB on white, in blocks, along the rows, down the columns, each for the whole."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    rows, columns = sides(size)
    if image.width * rows >= image.height * columns:  # too wide
        width, height = image.height * columns / rows, float(image.height)
    else:
        width, height = float(image.width), image.width * rows / columns
    left, top = (image.width - width) / 2, (image.height - height) / 2
    factor = int(width / columns / 2) or 1  # Pillow's, for a reducing gap of 2
    reach = 1.5 * width / columns if factor > 1 else max(image.size)
    x, y = max(0, int(left - reach)), max(0, int(top - reach))
    right, bottom = math.ceil(left + width + reach), math.ceil(top + height + reach)
    reduced = image.convert("RGB").reduce(factor, (x, y, min(image.width, right), min(image.height, bottom)))
    along = ((left - x) / factor, 0, (left + width - x) / factor, reduced.height)
    narrow = reduced.resize((columns, reduced.height), Image.Resampling.BICUBIC, along)
    down = (0, (top - y) / factor, columns, (top + height - y) / factor)
    return np.asarray(narrow.resize((columns, rows), Image.Resampling.BICUBIC, down)).astype(int)


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize(("width", "height"), [(5, 7), (101, 64), (300, 700), (1500, 1001)])
@pytest.mark.parametrize("size", [8, 31, 64, (30, 16)])
def test_bands_give_what_the_whole_gives(turn: int, width: int, height: int, size: Size) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    image = Image.fromarray(NOISE.integers(0, 256, (height, width, 3), dtype=np.uint8))
    content = file_of(image, "PNG", exif=exif, compress_level=0)
    assert np.array_equal(square(content, size), whole(content, size))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(("turn", "corner"), [(1, (0, 0)), (3, (1, 1)), (6, (0, 1)), (8, (1, 0))])
def test_a_white_corner_goes_where_exif_says(kind: str, turn: int, corner: tuple[int, int]) -> None:
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32, :32] = 255
    exif = Image.Exif()
    exif[0x0112] = turn
    found = square(file_of(Image.fromarray(pixels), kind, exif=exif), 2)[..., 0]
    assert found[corner] == found.max()
    assert found.max() > 200
    assert np.sort(found.ravel())[-2] < 60


def palette_with_alpha() -> Image.Image:
    image = Image.new("P", (40, 40), 0)
    image.putpalette([9, 9, 9, 0, 128, 255, 200, 10, 10])
    image.paste(1, (20, 0, 40, 20))
    image.paste(2, (0, 20, 40, 40))
    return image


@pytest.mark.parametrize("size", [4, 16, 40])
def test_transparency_lies_on_white(size: int) -> None:
    rgba = Image.fromarray(NOISE.integers(0, 256, (200, 300, 4), dtype=np.uint8))
    grey = Image.fromarray(NOISE.integers(0, 256, (200, 300, 2), dtype=np.uint8))
    files = [
        file_of(rgba, "PNG"),
        file_of(rgba, "WEBP", lossless=True),
        file_of(grey, "PNG"),
        file_of(palette_with_alpha(), "PNG", transparency=bytes((0, 255, 100))),
        file_of(palette_with_alpha(), "GIF", transparency=0),
        file_of(Image.fromarray(NOISE.integers(0, 2, (99, 99, 3), dtype=np.uint8)), "PNG", transparency=(0, 1, 0)),
    ]
    for content in files:
        assert np.array_equal(square(content, size), whole(content, size))


def test_sixteen_bits_and_inks() -> None:
    levels = np.repeat(np.arange(0, 65536, 1024, dtype=np.uint16)[None], 64, axis=0)
    found = square(file_of(Image.fromarray(levels), "PNG"), 64)[0]
    assert found[:, 0].tolist() == [round(value / 257) for value in range(0, 65536, 1024)]
    assert np.array_equal(found[:, 0], found[:, 2])
    inks = Image.new("CMYK", (32, 32), (255, 0, 255, 0))
    red, green, blue = square(file_of(inks, "JPEG", quality=95), 4)[1, 1]
    assert red < 15
    assert green > 240
    assert blue < 15


def test_a_panorama_is_scaled_while_it_is_decoded() -> None:
    content = file_of(Image.new("RGB", (16_000, 4_000), (10, 200, 30)), "JPEG")
    tight = Bounds(pixels=2_000_000, memory=16 * 2**20)
    assert abs(square(content, 16, tight) - (10, 200, 30)).max() <= 2
    with pytest.raises(TooLargeError, match="it has more than 2 million pixels: shrink it first"):
        square(file_of(Image.new("RGB", (16_00, 4_000)), "PNG"), 16, tight)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_a_large_picture_of_nothing_is_refused_before_it_takes_memory() -> None:
    flat = file_of(Image.new("RGB", (2100, 2100), "navy"), "WEBP", lossless=True)
    with pytest.raises(TooLargeError, match=rf"2100 x 2100 pixels of nothing in {len(flat)} bytes: it is no photo"):
        square(flat, 32)
    assert square(file_of(Image.new("RGB", (2100, 2100), "navy"), "PNG"), 32).shape == (32, 32, 3), (
        "as far as PNG packs"
    )
    assert square(file_of(Image.new("RGB", (1900, 1900), "navy"), "WEBP", lossless=True), 32).shape == (32, 32, 3)


def test_avif_on_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    content = file_of(Image.new("RGB", (40, 30), (10, 200, 30)), "AVIF")
    with pytest.raises(GcabError, match=r"it is AVIF, which is read only on request: add --formats avif"):
        square(content, 8)
    monkeypatch.setenv("GCAB_FORMATS", "avif")
    assert abs(square(content, 8) - (10, 200, 30)).max() <= 6


def test_heic_on_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    heif = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    heif.from_pillow(Image.new("RGB", (64, 48), (10, 200, 30))).save(stream)
    with pytest.raises(GcabError, match="it is HEIC, which is read only on request: add --formats heic"):
        square(stream.getvalue(), 8)
    monkeypatch.setenv("GCAB_FORMATS", "heic")
    assert abs(square(stream.getvalue(), 8) - (10, 200, 30)).max() <= 8


@pytest.mark.parametrize("kind", ["TIFF", "PPM"])
def test_old_formats_on_request_only(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = file_of(Image.new("RGB", (40, 30), (10, 200, 30)), kind)
    with pytest.raises(GcabError, match=f"it is {kind}, which is read only on request"):
        square(content, 8)
    monkeypatch.setenv("GCAB_FORMATS", kind.lower())
    assert square(content, 8)[0, 0].tolist() == [10, 200, 30]
    monkeypatch.setenv("GCAB_FORMATS", "bitmap")
    with pytest.raises(GcabError, match="unknown picture format 'bitmap'"):
        square(content, 8)


@pytest.mark.parametrize(
    "block", [b"", b"Exif\0\0", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", b"II*\0\x08\0\0\0"]
)
def test_orientations_that_make_no_sense_are_none(block: bytes) -> None:
    assert orientation(block) == 1
