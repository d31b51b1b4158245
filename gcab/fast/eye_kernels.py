"""The Triton kernel of `FastEye`; imported only where Triton is, on a GPU."""

import triton
import triton.language as tl


@triton.jit
def rounded(x):
    """To the nearest integer, ties to even, for |x| < 2²²: adding 1.5 · 2²³ leaves no bits for a fraction."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def answers_kernel(
    images, kernels, factors, sums,
    side: tl.constexpr, size: tl.constexpr, places: tl.constexpr, cells: tl.constexpr, filters: tl.constexpr,
    looks: tl.constexpr, padded: tl.constexpr, faint: tl.constexpr, flat: tl.constexpr, exact: tl.constexpr,
    some_places: tl.constexpr, some_filters: tl.constexpr, some_pixels: tl.constexpr,
):  # fmt: skip
    """One image, a tile of filters, one cell: their responses, summed over its places.

    Pixels are shifted by -128 to int8, for exact integer products, which changes nothing, as filters sum to 0 and
    deviations are invariant. Places and pixels out of range count as 0, to which no filter responds. The response of a
    filter in the mirrored image is that of the mirrored filter in the mirrored cell.
    """
    image, cell = tl.program_id(0), tl.program_id(2)
    pixels: tl.constexpr = 3 * size * size
    stride: tl.constexpr = places // cells
    window: tl.constexpr = places - stride * (cells - 1)
    chosen = tl.program_id(1) * some_filters + tl.arange(0, some_filters)  # those of the first look, then the mirrored
    known = chosen < looks * filters
    factor = tl.load(factors + chosen % filters, mask=known, other=1.0)
    above, below = tl.zeros((some_filters,), tl.float32), tl.zeros((some_filters,), tl.float32)
    for start in range(0, window * window, some_places):
        place = start + tl.arange(0, some_places)
        y, x = (cell // cells) * stride + place // window, (cell % cells) * stride + place % window
        corner = images + image * 3 * side * side + y * side + x  # of the patch at each place
        products = tl.zeros((some_filters, some_places), tl.int32)
        total, squares = tl.zeros((some_places,), tl.int32), tl.zeros((some_places,), tl.int32)
        for first in range(0, padded, some_pixels):
            pixel = first + tl.arange(0, some_pixels)
            channel, down, across = pixel // (size * size), pixel % (size * size) // size, pixel % size
            where = corner[:, None] + ((channel * side + down) * side + across)[None, :]
            there = (place[:, None] < window * window) & (pixel[None, :] < pixels)
            value = tl.load(where, mask=there, other=128).to(tl.int32) - 128  # (places, pixels)
            total += tl.sum(value, axis=1)
            squares += tl.sum(value * value, axis=1)
            kernel = tl.load(kernels + chosen[:, None] * padded + pixel[None, :], mask=known[:, None], other=0)
            products = tl.dot(kernel, tl.trans(value.to(tl.int8)), products, out_dtype=tl.int32)  # (filters, places)
        spread = pixels * squares - total * total
        if exact:
            deviation = tl.sqrt(spread.to(tl.float64) / (pixels * pixels) + flat * flat).to(tl.float32)
            z = tl.div_rn(products.to(tl.float32), tl.broadcast_to(deviation[None, :], (some_filters, some_places)))
            z = z * factor[:, None]
            above += tl.sum(rounded(tl.maximum(z - faint, 0.0)), axis=1)
            below += tl.sum(rounded(tl.maximum(-faint - z, 0.0)), axis=1)
        else:  # in units of the factor
            limit = (faint / factor)[:, None]
            z = products.to(tl.float32) * tl.rsqrt(spread.to(tl.float32) / (pixels * pixels) + flat * flat)[None, :]
            above += tl.sum(tl.maximum(z - limit, 0.0), axis=1) * factor
            below += tl.sum(tl.maximum(-limit - z, 0.0), axis=1) * factor
    seen = tl.where(chosen < filters, cell, cell + cells - 1 - 2 * (cell % cells))
    row = sums + (image * looks + chosen // filters) * 2 * filters * cells * cells
    row += chosen % filters * cells * cells + seen
    tl.store(row, above, mask=known)
    tl.store(row + filters * cells * cells, below, mask=known)
