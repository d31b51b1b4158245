"""The preprocessing of `gcab.data.decode` after decoding, as tensor operations that are part of an exported model.

Pillow's bicubic `resize` with a reducing gap is linear in the pixels, but for roundings: along each axis it is one
matrix, made here from the photo's size. What differs from Pillow, mostly by one level of 255 or not at all: it rounds
the blocks of a photo that is far too large, and it may go down the columns before it goes along the rows. Sums are in
double precision: in single, the order in which a runtime adds decides now and then which way a level is rounded.

Legend: x = a pixel's place on its axis, f = pixels averaged to one block (1: none), j = its block.
"""

import torch
from torch import Tensor, nn

from gcab.data.augment import cubic
from gcab.data.pictures import SUPPORT
from gcab.data.tasks import Setting
from gcab.sizes import sides

REDUCING_GAP = 2  # as in gcab.data.pictures


class Preprocessing(nn.Module):
    """From photos of one size, as bytes, to the network's normalised input: the centre, bicubic, antialiased."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting

    def forward(self, photos: Tensor) -> Tensor:
        _, height, width, _ = photos.shape  # (B, H, W, 3)
        rows, columns = torch.arange(height), torch.arange(width)
        high, wide = sides(self.setting.image_size)
        shown_rows = torch.minimum((rows[-1] + 1).double(), (columns[-1] + 1) * (high / wide))
        shown_columns = torch.minimum((columns[-1] + 1).double(), (rows[-1] + 1) * (wide / high))
        pixels = photos.permute(0, 3, 1, 2).double()  # (B, 3, H, W)
        narrow = to_levels(pixels @ resampling(columns, shown_columns, wide).T)  # (B, 3, H, wide)
        centre = to_levels(resampling(rows, shown_rows, high) @ narrow)  # (B, 3, high, wide)
        return self.setting.normalise(centre.to(torch.uint8))


def resampling(x: Tensor, side: Tensor, size: int) -> Tensor:
    """Weights (size, length) that bring the middle `side` pixels of an axis to `size`, each row with the sum 1."""
    length = x[-1] + 1
    begin = (length - side).double() / 2  # of the middle, in pixels; with an odd remainder it is half a pixel off
    step = side.double() / size
    f = (side // (size * REDUCING_GAP)).clamp_min(1)
    reach = (SUPPORT - 0.5) * step
    first = torch.where(f > 1, (begin - reach).trunc().clamp_min(0), 0).long()
    last = torch.where(f > 1, torch.minimum((begin + side + reach).ceil(), length), length).long()  # exclusive
    j = (x - first) // f
    block = torch.minimum(first + (j + 1) * f, last) - (first + j * f)  # pixels in it: the last one may be short
    centre = (begin - first) / f + (torch.arange(size, dtype=torch.float64) + 0.5) * step / f  # (size,), in blocks
    distance = (j + 0.5 - centre[:, None]) / (step / f).clamp_min(1)  # (size, length)
    weights = torch.where((x >= first) & (x < last), cubic(distance.abs()) / block, 0)
    return weights / weights.sum(dim=1, keepdim=True)


def to_levels(pixels: Tensor) -> Tensor:
    """Rounded as Pillow does, whose halves go up."""
    return (pixels + 0.5).floor().clamp(0, 255)
