"""Pictures made up for the tests of the page: a bird-like shape on a hill, in as many colours as there are seeds."""

import io
import random
import zipfile

from PIL import Image, ImageDraw


def bird(seed: int = 0, width: int = 300, height: int = 200, hue: int | None = None) -> Image.Image:
    """A picture that people can tell from noise; the crop to its centre square cuts both ends of the hill."""
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


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def zip_of(classes: dict[str, list[Image.Image]]) -> bytes:
    """What the Teach tab takes: one folder per class."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, images in classes.items():
            for index, image in enumerate(images):
                archive.writestr(f"{name}/{index}.png", encoded(image))
    return stream.getvalue()
