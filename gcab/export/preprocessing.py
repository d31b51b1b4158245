"""The preprocessing of `gcab.data.pictures` after decoding, as tensor operations that are part of an exported model.

Every level is that of Pillow: pixels of a photo that is far too large are averaged in blocks, those are resampled along
the rows and then down the columns, and each of the three is rounded to bytes as Pillow rounds it. Weights are whole
numbers, so no level depends on the order in which a runtime adds.

Legend: f = pixels along a side of a block (1: none), step = pixels of the photo per pixel of the result.
"""

import torch
from torch import Tensor, nn

from gcab.data.augment import cubic
from gcab.data.pictures import REDUCING_GAP, SUPPORT
from gcab.data.tasks import Setting
from gcab.sizes import sides

ONE = 2**22  # Pillow's weight 1
MOST_BLOCKS = 4, 20  # per pixel of the result, and at both ends for the reach of the kernel


class Preprocessing(nn.Module):
    """From photos of one size, as bytes, to the network's normalised input: the centre, bicubic, antialiased."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting

    def forward(self, photos: Tensor) -> Tensor:
        height, width = (torch.arange(length)[-1] + 1 for length in photos.shape[1:3])  # of (B, H, W, 3)
        high, wide = sides(self.setting.image_size)
        shown_high = torch.minimum(height.double(), width.double() * high / wide)
        shown_wide = torch.minimum(width.double(), height.double() * wide / high)
        step = shown_wide / wide
        rows, columns = Axis(height, shown_high, high, step), Axis(width, shown_wide, wide, step)
        blocks = averages(photos, rows, columns).permute(0, 3, 1, 2).double()  # (B, 3, blocks, blocks)
        narrow = to_levels(blocks @ columns.weights.T)  # (B, 3, blocks, wide)
        centre = to_levels(rows.weights @ narrow)  # (B, 3, high, wide)
        return self.setting.normalise(centre.to(torch.uint8))


class Axis:
    """Where the blocks of one axis lie, and the weights that bring its middle `side` pixels to `size`."""

    def __init__(self, length: Tensor, side: Tensor, size: int, step: Tensor) -> None:
        f = (step / REDUCING_GAP).long().clamp_min(1)
        begin = (length - side) / 2  # of the middle; with an odd remainder it is half a pixel off
        reach = torch.where(f > 1, (SUPPORT - 0.5) * step, SUPPORT * step.clamp_min(1) + 1)
        first = (begin - reach).clamp_min(0).long()
        last = torch.minimum((begin + side + reach).ceil().long(), length)  # exclusive
        per_pixel, more = MOST_BLOCKS
        self.edges = torch.minimum(first + torch.arange(per_pixel * size + more + 1) * f, last)
        self.pixels = (
            self.edges[1:] - self.edges[:-1]
        )  # of each block: the last may be short, those behind it have none
        # Pillow keeps the middle in single precision.
        inner, outer = ((begin - first) / f).float(), ((begin + side - first) / f).float()
        stretch = (outer - inner).double() / size  # blocks per pixel of the result
        centre = inner.double() + (torch.arange(size) + 0.5).double() * stretch
        distance = (torch.arange(len(self.pixels)) + 0.5).double() - centre[:, None]
        weights = torch.where(self.pixels > 0, cubic((distance / stretch.clamp_min(1)).abs()), 0.0)
        share = ONE * weights / weights.sum(dim=1, keepdim=True)
        self.weights = (share + 0.5 * share.sign()).trunc()  # (size, blocks)


def averages(photos: Tensor, rows: Axis, columns: Axis) -> Tensor:
    """The mean of every block (B, rows, columns, 3), rounded as Pillow's `reduce` does, whose halves go up."""
    total = between(between(photos.int(), 1, rows.edges).long(), 2, columns.edges)
    pixels = (rows.pixels[:, None] * columns.pixels).clamp_min(1)[..., None]
    inverse = (2**32 / (256 * pixels).float()).long()  # Pillow divides by multiplying, which may round a half down
    return (total + pixels // 2) * inverse // 2**24


def between(values: Tensor, dim: int, edges: Tensor) -> Tensor:
    """Sums of the values between neighbouring edges, along one dimension."""
    up_to = values.cumsum(dim, dtype=values.dtype).index_select(dim, (edges - 1).clamp_min(0))
    shape = [-1 if axis == dim else 1 for axis in range(values.ndim)]
    up_to = up_to * (edges > 0).reshape(shape)
    count = len(edges) - 1
    return up_to.narrow(dim, 1, count) - up_to.narrow(dim, 0, count)


def to_levels(sums: Tensor) -> Tensor:
    """Weighted sums of levels, rounded as Pillow does, whose halves go up."""
    return (sums / ONE + 0.5).floor().clamp(0, 255)
