"""Every kind of image becomes the same square bytes; every bad file becomes one sentence that names it."""

import io
import random
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, TiffImagePlugin

from gcab.data.containers.contents import Bounds
from gcab.data.decode import decode_many, from_pil, read_image, resized
from gcab.data.pictures import examine, load
from gcab.errors import GcabError


@pytest.fixture(autouse=True)
def _every_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCAB_FORMATS", "tiff,ppm")


def flat(mode: str, colour: object, size: tuple[int, int] = (6, 4)) -> Image.Image:
    return Image.new(mode, size, colour)  # type: ignore[arg-type]


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def forged_png(path: Path, width: int, height: int) -> Path:
    """A PNG whose header claims a size that its few bytes cannot hold."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b""))
    return path


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (flat("1", 1), (255, 255, 255)),
        (flat("L", 77), (77, 77, 77)),
        (flat("RGB", (10, 20, 30)), (10, 20, 30)),
        (flat("LA", (0, 0)), (255, 255, 255)),
        (flat("LA", (40, 255)), (40, 40, 40)),
        (flat("RGBA", (200, 100, 0, 0)), (255, 255, 255)),
        (flat("RGBA", (200, 100, 0, 255)), (200, 100, 0)),
        (flat("RGBA", (255, 0, 0, 51)), (255, 204, 204)),  # a fifth of red on white
        (flat("I;16", 65535), (255, 255, 255)),
        (flat("I;16", 257 * 100), (100, 100, 100)),
        (flat("I;16", 257 * 100 + 200), (101, 101, 101)),  # rounded, not cut
    ],
)
def test_modes_survive_a_png(tmp_path: Path, image: Image.Image, expected: tuple[int, int, int]) -> None:
    pixels = read_image(saved(tmp_path / "image.png", image), 2)
    assert pixels.dtype == torch.uint8
    assert pixels.shape == (3, 2, 2)
    assert pixels.is_contiguous()
    assert pixels[:, 0, 0].tolist() == list(expected)
    assert torch.equal(pixels, from_pil(image, 2))


def test_palette_with_a_transparent_entry_lies_on_white(tmp_path: Path) -> None:
    image = Image.new("P", (4, 4), 0)
    image.putpalette([9, 9, 9, 0, 128, 255])
    image.paste(1, (2, 0, 4, 4))
    pixels = read_image(saved(tmp_path / "palette.png", image, transparency=0), 4)
    assert pixels[:, 0, 0].tolist() == [255, 255, 255]
    assert pixels[:, 0, 3].tolist() == [0, 128, 255]


def test_cmyk_photo_keeps_its_colour(tmp_path: Path) -> None:
    path = saved(tmp_path / "print.jpg", flat("CMYK", (0, 255, 255, 0), (16, 16)), quality=95)
    red, green, blue = read_image(path, 4)[:, 1, 1].tolist()
    assert red > 240
    assert green < 15
    assert blue < 15


@pytest.mark.parametrize("mode", ["I", "F"])
def test_numbers_of_unknown_range_are_refused(tmp_path: Path, mode: str) -> None:
    path = saved(tmp_path / "measured.tif", flat(mode, 70000))
    with pytest.raises(GcabError, match=r"measured\.tif.*8 or 16 bits"):
        read_image(path, 2)


def test_exif_orientation_is_applied_once(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, :4] = 255  # white on the left
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned a quarter clockwise: white on top
    path = saved(tmp_path / "phone.png", Image.fromarray(pixels), exif=exif)
    upright = read_image(path, 8)[0]
    assert upright[:4].min() == 255
    assert upright[4:].max() == 0
    with Image.open(path) as image:
        assert torch.equal(from_pil(image, 8)[0], upright)


def test_short_side_is_scaled_and_the_centre_kept() -> None:
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, 4:8] = (0, 255, 0)  # the centre square of a wide image
    assert from_pil(Image.fromarray(pixels), 4)[:, 2].tolist() == [[0] * 4, [255] * 4, [0] * 4]
    assert from_pil(Image.fromarray(pixels).rotate(90, expand=True), 4)[1].min() == 255


def test_shrinking_averages_instead_of_skipping() -> None:
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    assert (from_pil(Image.fromarray(board), 4).float() - 127.5).abs().max() <= 2


def test_reduced_jpeg_decoding_looks_like_full_decoding(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 1024).astype(np.uint8)
    image = Image.fromarray(np.stack([np.broadcast_to(ramp, (512, 1024))] * 3, axis=2))
    path = saved(tmp_path / "large.jpg", image, quality=95)
    with Image.open(path) as whole:
        difference = read_image(path, 16).float() - from_pil(whole, 16).float()
        assert whole.size == (1024, 512)
    assert load(examine(path.read_bytes(), "large", Bounds(), 32), "large", 32).size == (128, 64)
    assert difference.abs().max() <= 2


def test_streams_are_read_like_paths(tmp_path: Path) -> None:
    path = saved(tmp_path / "image.png", flat("RGB", (1, 2, 3)))
    assert torch.equal(read_image(io.BytesIO(path.read_bytes()), 3), read_image(path, 3))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match=r"nowhere\.png cannot be opened"):
        read_image(tmp_path / "nowhere.png", 4)
    with pytest.raises(GcabError, match=r"nowhere\.png cannot be opened"):
        decode_many([tmp_path / "nowhere.png"], 4)


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "zero.png").touch()
    with pytest.raises(GcabError, match=r"zero\.png is empty"):
        read_image(tmp_path / "zero.png", 4)


def test_text_with_an_image_suffix(tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_text("not a picture")
    with pytest.raises(GcabError, match=r"notes\.png is not an image"):
        read_image(tmp_path / "notes.png", 4)


def test_postscript_is_not_run(tmp_path: Path) -> None:
    path = saved(tmp_path / "drawing.eps", flat("RGB", (1, 2, 3)))
    with pytest.raises(GcabError, match=r"drawing\.eps is not an image"):
        read_image(path, 4)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tif", "webp"])
def test_truncated_file(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    path = saved(tmp_path / f"cut.{suffix}", Image.fromarray(noise))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(GcabError, match=rf"cut\.{suffix} is "):
        read_image(path, 4)


def test_lazily_opened_truncated_image_from_python(tmp_path: Path) -> None:
    path = saved(tmp_path / "cut.png", Image.effect_noise((64, 64), 50))
    with Image.open(io.BytesIO(path.read_bytes()[:900])) as image, pytest.raises(GcabError, match="damaged"):
        from_pil(image, 4)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tif", "webp", "ppm"])
def test_damaged_bytes_never_raise_anything_else(suffix: str) -> None:
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    options = {"exif": exif} if suffix in ("png", "jpg", "webp", "tif") else {}
    formats = {"jpg": "JPEG", "tif": "TIFF"}
    Image.effect_noise((24, 24), 60).convert("RGB").save(buffer, formats.get(suffix, suffix), **options)
    chance = random.Random(1)
    refused = 0
    for _ in range(150):
        content = bytearray(buffer.getvalue())
        for _ in range(4):
            content[chance.randrange(min(len(content), 200))] = chance.randrange(256)
        try:
            assert read_image(io.BytesIO(content), 4).shape == (3, 4, 4)
        except GcabError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tif"])
def test_animation_is_refused(tmp_path: Path, suffix: str) -> None:
    frames = [flat("RGB", (shade, 0, 0), (8, 8)) for shade in (0, 120, 250)]
    path = saved(tmp_path / f"moving.{suffix}", frames[0], save_all=True, append_images=frames[1:])
    with pytest.raises(GcabError, match=rf"moving\.{suffix} is animated or has several pages \(3\)"):
        read_image(path, 4)


def test_photo_with_preview_frames_is_one_photo(tmp_path: Path) -> None:
    frames = [flat("RGB", (250, 250, 250), (16, 16)), flat("RGB", (0, 0, 0), (8, 8))]
    path = saved(tmp_path / "phone.jpg", frames[0], format="MPO", save_all=True, append_images=frames[1:])
    assert read_image(path, 4).min() > 240


@pytest.mark.parametrize("side", [8001, 10000, 100000])  # over our limit, where Pillow warns, where Pillow refuses
def test_gigantic_header_is_refused_before_decoding(tmp_path: Path, side: int) -> None:
    with pytest.raises(GcabError, match=r"huge\.png has more than 64 million pixels"):
        read_image(forged_png(tmp_path / "huge.png", side, side), 4)


def test_gigantic_header_is_refused_without_a_warning_however_warnings_are_set(tmp_path: Path) -> None:
    huge = [forged_png(tmp_path / f"huge{number}.png", 10000, 10000) for number in range(40)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        with pytest.raises(GcabError, match=r"huge\d+\.png has more than 64 million pixels"):
            decode_many(huge, 4)  # in several threads
        assert list(warnings.filters) == before
    assert told == []


def test_what_no_reader_foresaw_is_said_like_any_other_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def surprised(*_: object) -> Image.Image:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("gcab.data.pictures._rgb", surprised)
    with pytest.raises(GcabError, match=r"a\.png is damaged or cut short \(by zero\)"):
        read_image(saved(tmp_path / "a.png", flat("L", 3)), 4)


def test_largest_allowed_header_is_not_called_too_large(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match="8000 x 8000 pixels of nothing in"):
        read_image(forged_png(tmp_path / "fits.png", 8000, 8000), 4)
    with pytest.raises(GcabError, match="damaged or cut short"):
        read_image(forged_png(tmp_path / "small.png", 2000, 2000), 4)


def test_many_keep_their_order_and_tell_progress(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{shade}.png", flat("L", shade)) for shade in range(0, 250, 10)]
    told: list[tuple[int, int]] = []
    images = decode_many(paths, 2, progress=lambda done, total: told.append((done, total)))
    assert images[:, 0, 0, 0].tolist() == list(range(0, 250, 10))
    assert told == [(done, 25) for done in range(1, 26)]


def test_one_bad_file_among_many_is_named(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{shade}.png", flat("L", shade)) for shade in range(10)]
    paths[6].write_bytes(b"")
    with pytest.raises(GcabError, match=r"6\.png is empty"):
        decode_many(paths, 2)


def test_tiff_written_big_endian(tmp_path: Path) -> None:
    image = Image.fromarray(np.full((4, 4), 257 * 30, dtype=">u2"))
    assert image.mode == "I;16B"
    path = saved(tmp_path / "big.tif", image, tiffinfo=TiffImagePlugin.ImageFileDirectory_v2())
    assert read_image(path, 2).unique().tolist() == [30]


def test_arrays_are_resized_only_when_needed() -> None:
    images = torch.full((2, 3, 8, 8), 200, dtype=torch.uint8)
    assert resized(images, 8).data_ptr() == images.data_ptr()
    larger = resized(images, 12)
    assert larger.shape == (2, 3, 12, 12)
    assert larger.dtype == torch.uint8
    assert larger.unique().tolist() == [200]
