"""The exported way from a photo to the network's input, beside Pillow's."""

import numpy as np
import pytest
import torch
from helpers.models import random_bytes
from helpers.photos import soft
from torch import Tensor

from gcab.data.decode import from_pil
from gcab.data.tasks import Setting
from gcab.export.preprocessing import Preprocessing, resampling
from gcab.model.encoder import EncoderConfig
from gcab.sizes import Size


def levels(photos: Tensor, size: Size) -> Tensor:
    """What the network would get, as bytes."""
    bare = Setting(EncoderConfig(), size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return (Preprocessing(bare)(photos) * 255).round()


def weights(length: int, side: int, size: int) -> Tensor:
    return resampling(torch.arange(length), torch.tensor(side), size).float()


@pytest.mark.parametrize("size", [8, 32, 224])
def test_photos_of_the_right_size_pass_unchanged(size: int) -> None:
    photos = random_bytes(2, size, size, 3)
    setting = Setting(EncoderConfig(), size, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    assert torch.equal(Preprocessing(setting)(photos), setting.normalise(photos.permute(0, 3, 1, 2)))


def test_weights_by_hand() -> None:
    assert torch.equal(weights(2, 2, 1), torch.tensor([[0.5, 0.5]]))
    # The middle two of five: cut at half a pixel, so each is nearly the mean of two.
    half = torch.tensor([[-0.0625, 0.5625, 0.5625, -0.0625, 0.0], [0.0, -0.0625, 0.5625, 0.5625, -0.0625]])
    assert torch.allclose(weights(5, 2, 2), half)
    # 8 pixels to 1 are averaged in blocks of 4 first; both blocks lie equally far from the middle.
    assert torch.allclose(weights(8, 8, 1), torch.full((1, 8), 1 / 8))
    # 9 pixels: the third block is one pixel wide and counts as a whole block.
    row = weights(9, 9, 1)[0]
    assert torch.allclose(row[:4], row[:1].expand(4))
    assert float(row[8]) == pytest.approx(float(cubic_at(1.375 / 2.25)) / total_of_nine())


def cubic_at(distance: float) -> float:
    return 1.5 * distance**3 - 2.5 * distance**2 + 1


def total_of_nine() -> float:
    """Blocks centred at 0.5, 1.5 and 2.5, of an interval with its middle at 9/8 and 9/4 blocks long."""
    return sum(cubic_at(abs(centre - 1.125) / 2.25) for centre in (0.5, 1.5, 2.5))


@pytest.mark.parametrize(("length", "side", "size"), [(40, 33, 8), (700, 500, 32), (9, 9, 16), (101, 100, 100)])
def test_every_weight_row_keeps_the_brightness(length: int, side: int, size: int) -> None:
    assert torch.allclose(weights(length, side, size).sum(dim=1), torch.ones(size), atol=1e-5)


@pytest.mark.parametrize(
    ("width", "height", "size", "most", "mean"),
    [
        (50, 40, 32, 1, 0.01),  # smaller, no blocks
        (61, 40, 32, 1, 0.01),  # cut at half a pixel
        (20, 20, 32, 1, 0.01),  # larger
        (64, 32, 32, 1, 0.01),  # only cut
        (300, 201, 32, 1, 0.3),  # blocks, whose means Pillow rounds to bytes
        (640, 481, 64, 1, 0.3),
        (29, 39, 32, 5, 0.3),  # Pillow goes down the columns first, and clips in between
        (1201, 1600, 224, 3, 0.3),
        (50, 40, (16, 32), 1, 0.05),  # cut above and below
        (300, 201, (32, 16), 1, 0.3),  # cut at the sides
        (200, 300, (16, 48), 2, 0.3),
    ],
)
def test_as_close_to_pillow_as_stated(width: int, height: int, size: Size, most: float, mean: float) -> None:
    image = soft(width, height)
    apart = (levels(torch.from_numpy(np.asarray(image)[None].copy()), size)[0] - from_pil(image, size)).abs()
    assert apart.max() <= most
    assert apart.mean() <= mean


def test_no_level_depends_on_the_order_of_a_sum() -> None:
    """Runtimes add up in orders of their own, and one level of one pixel is more than an export may differ by."""
    photos = random_bytes(8, 193, 320, 3)
    assert torch.equal(levels(photos.flip(1, 2), 64), levels(photos, 64).flip(2, 3))


def test_every_photo_of_a_batch_is_treated_alone() -> None:
    photos = random_bytes(3, 30, 50, 3)
    together = levels(photos, 8)
    assert all(torch.equal(together[index], levels(photos[index : index + 1], 8)[0]) for index in range(3))
