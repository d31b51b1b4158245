"""The Triton kernel of `FastEye`; imported only where Triton is, on a GPU."""

import triton
import triton.language as tl


@triton.jit
def rounded(x):
    """To the nearest whole number, ties to even, for |x| < 2²²: adding 1.5 · 2²³ leaves no room for a fraction."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def answers_kernel(
    images, kernels, factors, sums, looks,
    side: tl.constexpr, size: tl.constexpr, places: tl.constexpr, cells: tl.constexpr, filters: tl.constexpr,
    padded: tl.constexpr, faint: tl.constexpr, flat: tl.constexpr,
    some_places: tl.constexpr, some_filters: tl.constexpr, some_pixels: tl.constexpr,
):  # fmt: skip
    """One look at one image, some filters, one cell: how strongly they answer there, summed over its places.

    Pixels count from -128, as filters add up to 0 and a deviation does not depend on where zero is; so they are bytes
    with a sign, and products of whole numbers are exact.
    """
    image, mirrored = tl.program_id(0) // looks, tl.program_id(0) % looks
    cell = tl.program_id(2)
    pixels: tl.constexpr = 3 * size * size
    stride: tl.constexpr = places // cells
    window: tl.constexpr = places - stride * (cells - 1)
    chosen = tl.program_id(1) * some_filters + tl.arange(0, some_filters)
    factor = tl.load(factors + chosen, mask=chosen < filters, other=0.0)
    above, below = tl.zeros((some_filters,), tl.float32), tl.zeros((some_filters,), tl.float32)
    for start in range(0, window * window, some_places):
        place = start + tl.arange(0, some_places)
        y, x = (cell // cells) * stride + place // window, (cell % cells) * stride + place % window
        x = tl.where(mirrored == 1, side - 1 - x, x)
        corner = images + image * 3 * side * side + y * side + x  # of the patch at each place
        products = tl.zeros((some_places, some_filters), tl.int32)
        total, squares = tl.zeros((some_places,), tl.int32), tl.zeros((some_places,), tl.int32)
        for first in range(0, padded, some_pixels):
            pixel = first + tl.arange(0, some_pixels)
            channel, down, across = pixel // (size * size), pixel % (size * size) // size, pixel % size
            across = tl.where(mirrored == 1, -across, across)
            where = corner[:, None] + ((channel * side + down) * side + across)[None, :]
            there = (place[:, None] < window * window) & (pixel[None, :] < pixels)
            value = tl.load(where, mask=there, other=128).to(tl.int32) - 128  # (places, pixels)
            total += tl.sum(value, axis=1)
            squares += tl.sum(value * value, axis=1)
            kernel = tl.load(
                kernels + chosen[None, :] * padded + pixel[:, None], mask=chosen[None, :] < filters, other=0
            )  # (pixels, filters)
            products = tl.dot(value.to(tl.int8), kernel, products, out_dtype=tl.int32)
        variance = (pixels * squares - total * total).to(tl.float64) / (pixels * pixels)
        deviation = tl.sqrt(variance + flat * flat).to(tl.float32)
        z = tl.div_rn(products.to(tl.float32), tl.broadcast_to(deviation[:, None], (some_places, some_filters)))
        z = tl.where(place[:, None] < window * window, z * factor[None, :], 0.0)
        above += tl.sum(rounded(tl.maximum(z - faint, 0.0)), axis=0)
        below += tl.sum(rounded(tl.maximum(-faint - z, 0.0)), axis=0)
    row = sums + tl.program_id(0) * 2 * filters * cells * cells + chosen * cells * cells + cell
    tl.store(row, above, mask=chosen < filters)
    tl.store(row + filters * cells * cells, below, mask=chosen < filters)
