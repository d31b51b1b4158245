"""Exported models take photos as Pillow decodes them: the documented way for JPEGs gives gcab's own pixels."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from gcab.data.decode import read_image
from gcab.data.tasks import Setting
from gcab.export.preprocessing import Preprocessing
from gcab.model.encoder import EncoderConfig


def camera_photo(width: int, height: int, orientation: int) -> bytes:
    """Soft shapes with fine grain, as a camera would save them."""
    random = np.random.default_rng(0)
    coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((width, height))
    grain = random.normal(0, 12, (height, width, 1))
    pixels = (np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=88, exif=exif)
    return stream.getvalue()


@pytest.mark.repeats
@pytest.mark.parametrize("size", [32, 64, 224])
@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize(("width", "height"), [(640, 427), (1600, 1200), (4000, 3000), (400, 300)])
def test_the_documented_way_gives_gcabs_own_pixels(size: int, orientation: int, width: int, height: int) -> None:
    content = camera_photo(width, height, orientation)
    photo = Image.open(io.BytesIO(content))
    photo.draft("RGB", (2 * size, 2 * size))
    pixels = torch.from_numpy(np.array(ImageOps.exif_transpose(photo).convert("RGB")))[None]
    bare = Setting(EncoderConfig(), size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    exported = (Preprocessing(bare)(pixels)[0] * 255).round()
    assert torch.equal(exported, read_image(io.BytesIO(content), size).float())
