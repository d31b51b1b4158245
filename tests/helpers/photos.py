"""Photos made up for tests: the name of a class decides what its photos look like."""

import io
import random
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
WEEK1, WEEK2 = ("circle", "square"), ("bar", "cross", "ring")  # classes of two lessons
TILES = 4  # coloured squares along each side of a class's pattern


def pictures(name: str, count: int, side: int = 16, width: int | None = None, seed: int = 0) -> Pixels:
    """Noise around the pattern of a class, which is the same for every seed and size: something a network can learn."""
    pattern = np.random.default_rng(list(name.encode())).integers(0, 200, (TILES, TILES, 3))
    rows, columns = (np.arange(length) * TILES // length for length in (side, width or side))
    noise = np.random.default_rng([seed, *name.encode()]).integers(0, 56, (count, side, width or side, 3))
    return (pattern[rows][:, columns] + noise).astype(np.uint8)


def some_photos(folder: Path, count: int) -> list[Path]:
    """Different photos in one folder, of four classes in turn."""
    kinds = [pictures(name, count, 10, 12) for name in "abcd"]
    return save_photos(folder, np.stack([kinds[number % 4][number] for number in range(count)]))


def make_photos(
    root: Path, names: Sequence[str], count: int = 12, side: int = 8, width: int | None = None, seed: int = 0
) -> Path:
    """A folder of PNG files per class."""
    for name in names:
        save_photos(root / name, pictures(name, count, side, width, seed))
    return root


def save_photos(folder: Path, photos: Pixels) -> list[Path]:
    """PNG files, whose names are in the order of the photos."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:03d}.png" for number in range(len(photos))]
    for file, pixels in zip(files, photos, strict=True):
        Image.fromarray(pixels).save(file)
    return files


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    """A photo of nothing, unlike any other of another seed."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def soft(width: int, height: int, seed: int = 0) -> Image.Image:
    """Soft shapes with some noise on them, as photos from cameras have."""
    chance = np.random.default_rng(seed)
    rough = noise(max(2, width // 12), max(2, height // 12), seed)
    shapes = np.asarray(rough.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return Image.fromarray(np.clip(shapes + chance.integers(-20, 21, shapes.shape), 0, 255).astype(np.uint8))


def bird(seed: int = 0, width: int = 300, height: int = 200, hue: int | None = None) -> Image.Image:
    """A picture for screenshots; the crop to its centre square cuts both ends of the hill."""
    chance = random.Random(seed)
    hue = chance.randrange(256) if hue is None else hue
    image = Image.new("HSV", (width, height), (140, 60, 235))
    draw = ImageDraw.Draw(image)
    draw.ellipse((-width // 2, height * 0.65, width * 1.5, height * 2), fill=(90, 130, 120 + chance.randrange(40)))
    x, y = width * (0.45 + 0.1 * chance.random()), height * (0.4 + 0.1 * chance.random())
    size = min(width, height) * 0.2
    draw.ellipse((x - size, y - size * 0.6, x + size, y + size * 0.8), fill=(hue, 200, 220))
    draw.ellipse((x + size * 0.5, y - size, x + size * 1.3, y - size * 0.2), fill=(hue, 220, 190))
    draw.polygon(
        [(x - size * 0.8, y), (x - size * 1.9, y - size * 0.4), (x - size * 1.7, y + size * 0.3)], fill=(hue, 220, 150)
    )
    return image.convert("RGB")


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image file."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    """The bytes of an archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


RED_PNG = encoded(Image.new("RGB", (9, 9), "red"))
