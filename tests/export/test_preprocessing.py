"""The exported way from a photo to the network's input, beside Pillow's."""

import numpy as np
import pytest
import torch
from helpers.models import random_bytes
from helpers.photos import noise, soft
from PIL import Image
from torch import Tensor

from gcab.data.decode import from_pil
from gcab.data.tasks import Setting
from gcab.export.preprocessing import ONE, Axis, Preprocessing, averages
from gcab.model.encoder import EncoderConfig
from gcab.sizes import Size


def levels(photos: Tensor, size: Size) -> Tensor:
    """What the network would get, as bytes."""
    bare = Setting(EncoderConfig(), size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return (Preprocessing(bare)(photos) * 255).round()


def axis(length: int, side: int, size: int) -> Axis:
    whole = torch.tensor(side, dtype=torch.float64)
    return Axis(torch.tensor(length), whole, size, whole / size)


def weights(length: int, side: int, size: int) -> Tensor:
    """Of the blocks that have pixels; those of the others are 0."""
    found = axis(length, side, size)
    assert not found.weights[:, found.pixels == 0].any()
    return found.weights[:, found.pixels > 0] / ONE


@pytest.mark.repeats
@pytest.mark.parametrize("size", [8, 32, 224])
def test_photos_of_the_right_size_pass_unchanged(size: int) -> None:
    photos = random_bytes(2, size, size, 3)
    setting = Setting(EncoderConfig(), size, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    assert torch.equal(Preprocessing(setting)(photos), setting.normalise(photos.permute(0, 3, 1, 2)))


def test_weights_by_hand() -> None:
    assert weights(2, 2, 1).tolist() == [[0.5, 0.5]]
    # The middle two of five: cut at half a pixel, so each is nearly the mean of two.
    half = [[-0.0625, 0.5625, 0.5625, -0.0625, 0.0], [0.0, -0.0625, 0.5625, 0.5625, -0.0625]]
    assert weights(5, 2, 2).tolist() == half
    # 8 pixels to 1 are averaged in blocks of 4 first; both blocks lie equally far from the middle.
    assert axis(8, 8, 1).pixels[:3].tolist() == [4, 4, 0]
    assert weights(8, 8, 1).tolist() == [[0.5, 0.5]]
    # 9 pixels: the third block is one pixel wide and counts as a whole block.
    assert axis(9, 9, 1).pixels[:4].tolist() == [4, 4, 1, 0]
    assert float(weights(9, 9, 1)[0, 2]) == pytest.approx(cubic_at(1.375 / 2.25) / total_of_nine(), abs=1e-6)


def cubic_at(distance: float) -> float:
    return 1.5 * distance**3 - 2.5 * distance**2 + 1


def total_of_nine() -> float:
    """Blocks centred at 0.5, 1.5 and 2.5, of an interval with its middle at 9/8 and 9/4 blocks long."""
    return sum(cubic_at(abs(centre - 1.125) / 2.25) for centre in (0.5, 1.5, 2.5))


@pytest.mark.parametrize(("length", "side", "size"), [(40, 33, 8), (700, 500, 32), (9, 9, 16), (101, 100, 100)])
def test_every_weight_row_keeps_the_brightness(length: int, side: int, size: int) -> None:
    assert torch.allclose(weights(length, side, size).sum(dim=1), torch.ones(size).double(), atol=1e-5)


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        (50, 40, 32),  # smaller, no blocks
        (61, 40, 32),  # cut at half a pixel
        (20, 20, 32),  # larger
        (64, 32, 32),  # only cut
        (29, 39, 32),  # high: some versions of Pillow would go down the columns first
        (300, 201, 32),  # blocks, whose means are rounded
        (201, 300, 32),
        (640, 481, 64),
        (1201, 1600, 224),
        (1, 2000, 8),
        (50, 40, (16, 32)),  # cut above and below
        (300, 201, (32, 16)),  # cut at the sides
        (200, 300, (16, 48)),
    ],
)
def test_every_level_is_that_of_gcabs_own_decoding(width: int, height: int, size: Size) -> None:
    for image in (soft(width, height), noise(width, height)):
        exported = levels(torch.from_numpy(np.array(image))[None], size)[0]
        assert torch.equal(exported, from_pil(image, size).float())


@pytest.mark.parametrize("f", [2, 3, 5, 7, 12, 25])
def test_blocks_are_rounded_as_pillow_rounds_them(f: int) -> None:
    """Sums just above and below halves, which Pillow's multiplication may round otherwise than a division."""
    blocks, pixels = 256, f * f
    high = torch.arange(blocks) // 2 * 2 // 2  # of each block, all pixels have this level, and some one more
    more = pixels // 2 + torch.arange(blocks) % 2
    block = high[:, None] + (torch.arange(pixels) < more[:, None])
    photo = block.reshape(16, 16, f, f).transpose(1, 2).reshape(1, 16 * f, 16 * f, 1).expand(-1, -1, -1, 3).byte()
    side = axis(16 * f, 16 * f, 8)
    expected = torch.from_numpy(np.array(Image.fromarray(photo[0].numpy()).reduce(f)))
    assert torch.equal(averages(photo, side, side)[0, :16, :16], expected.long())


def test_no_level_depends_on_the_order_of_a_sum() -> None:
    """Runtimes add up in orders of their own, and one level of one pixel is more than an export may differ by."""
    photos = random_bytes(8, 193, 320, 3)
    assert torch.equal(levels(photos.flip(1, 2), 64), levels(photos, 64).flip(2, 3))


def test_every_photo_of_a_batch_is_treated_alone() -> None:
    photos = random_bytes(3, 30, 50, 3)
    together = levels(photos, 8)
    assert all(torch.equal(together[index], levels(photos[index : index + 1], 8)[0]) for index in range(3))
