"""RandAugment as the paper's authors used it (timm's `rand-m9-mstd0.5-inc1`), for a whole batch at once.

An image draws one of fifteen operations per layer. Eight of them map grey levels through a table, two blend the
image with a degraded copy and five move pixels, so a layer is one bicubic sampling, one table and one blend for
the whole batch: each leaves alone, exactly, the images whose operation belongs to another group. Pixels stay
bytes in between and are rounded as Pillow rounds them.
"""

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

STRONGEST = 10.0  # magnitudes are given on a scale from 0 to 10
FILL = (124, 116, 104)  # shown where pixels moved away: ImageNet's mean colour, whatever the data set


class Operation(IntEnum):
    """The choices of one layer, all equally likely."""

    AUTOCONTRAST = 0
    EQUALIZE = 1
    INVERT = 2
    ROTATE = 3
    POSTERIZE = 4
    SOLARIZE = 5
    SOLARIZE_ADD = 6
    COLOUR = 7
    CONTRAST = 8
    BRIGHTNESS = 9
    SHARPNESS = 10
    SHEAR_X = 11
    SHEAR_Y = 12
    TRANSLATE_X = 13
    TRANSLATE_Y = 14


class Layer(NamedTuple):
    """What one layer does to each image, drawn before any pixel is touched."""

    operation: Tensor  # (B,) int64
    applied: Tensor  # (B,) bool
    magnitude: Tensor  # (B,) float32 in 0..10
    negated: Tensor  # (B,) bool: the other direction, where an operation has one


def draw_layer(
    batch: int, magnitude: float, magnitude_std: float, probability: float, generator: torch.Generator
) -> Layer:
    """Make every random choice of a layer at once, so that the rest is a pure function of tensors."""
    device = generator.device
    noise = torch.randn(batch, generator=generator, device=device)
    return Layer(
        operation=torch.randint(len(Operation), (batch,), generator=generator, device=device),
        applied=torch.rand(batch, generator=generator, device=device) < probability,
        magnitude=(magnitude + magnitude_std * noise).clamp(0.0, STRONGEST),
        negated=torch.rand(batch, generator=generator, device=device) < 0.5,
    )


def apply_layer(images: Tensor, layer: Layer) -> Tensor:
    """Give each image of a batch (B, 3, H, W) uint8 its own operation."""
    nothing = -1
    operation = torch.where(layer.applied, layer.operation, nothing)
    # Double precision until the arguments are final: truncation to whole levels must not depend on float32.
    strength = layer.magnitude.double() / STRONGEST
    signed = torch.where(layer.negated, -strength, strength)
    images = _move(images, operation, signed)
    images = _map_levels(images, operation, strength, signed)
    return _blend_with_degraded(images, operation, signed)


def _is(operation: Tensor, wanted: Operation) -> Tensor:
    """Compare with the plain number: traced by `torch.compile`, a tensor never equals a member of an enum."""
    return operation == wanted.value


def per_channel(values: tuple[float, float, float], like: Tensor) -> Tensor:
    """Fill a (3, 1, 1) constant on the device: a copy from the host would break a recorded graph."""
    return torch.stack([torch.full((1, 1), value, dtype=like.dtype, device=like.device) for value in values])


def _move(images: Tensor, operation: Tensor, signed: Tensor) -> Tensor:
    """Rotate, shear or translate: where in the input each output pixel lies, as one affine map per image."""
    height, width = images.shape[-2:]

    def amount(moved_by: Operation, scale: float) -> Tensor:
        return torch.where(_is(operation, moved_by), signed * scale, 0.0)[:, None, None]  # (B, 1, 1)

    angle = torch.deg2rad(-amount(Operation.ROTATE, 30.0))
    cosine, sine = torch.cos(angle), torch.sin(angle)
    # Pixel centres lie at half integers; the rotation turns about the middle of the image.
    x = torch.arange(width, dtype=torch.float64, device=images.device) + 0.5  # (W,)
    y = torch.arange(height, dtype=torch.float64, device=images.device)[:, None] + 0.5  # (H, 1)
    shift_x = width / 2 - cosine * (width / 2) - sine * (height / 2) + amount(Operation.TRANSLATE_X, 0.45 * width)
    shift_y = height / 2 + sine * (width / 2) - cosine * (height / 2) + amount(Operation.TRANSLATE_Y, 0.45 * height)
    source_x = cosine * x + (sine + amount(Operation.SHEAR_X, 0.3)) * y + shift_x  # (B, H, W)
    source_y = (amount(Operation.SHEAR_Y, 0.3) - sine) * x + cosine * y + shift_y
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    moved = _sample_bicubic(images, source_x, source_y)
    return torch.where(inside[:, None], moved, per_channel(FILL, images))


def _sample_bicubic(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Interpolate over 4 x 4 pixels, edges repeated, as Pillow's `Image.transform` does (it truncates)."""
    batch, channels, height, width = images.shape
    pixels = images.flatten(2).float()  # (B, 3, HW)
    column, row = torch.floor(x - 0.5), torch.floor(y - 0.5)
    weights_x = _cubic_weights((x - 0.5 - column).float().view(batch, 1, -1))
    weights_y = _cubic_weights((y - 0.5 - row).float().view(batch, 1, -1))
    columns = [(column.long() + tap).clamp(0, width - 1) for tap in range(-1, 3)]
    lines = []
    for tap in range(-1, 3):
        start = (row.long() + tap).clamp(0, height - 1) * width
        indices = [(start + column).view(batch, 1, -1).expand(-1, channels, -1) for column in columns]
        lines.append(_cubic([pixels.gather(2, index) for index in indices], weights_x))
    return _cubic(lines, weights_y).clamp(0, 255).to(torch.uint8).view_as(images)


def _cubic_weights(fraction: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weigh the outer taps of Pillow's cubic (a = -1) at a fraction between the two inner ones."""
    rest = 1 - fraction
    return -fraction * rest * rest, fraction * (1 + fraction * rest), -fraction * fraction * rest


def _cubic(taps: list[Tensor], weights: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Add differences to the second tap, so that truncation cannot hurt flat areas and unmoved pixels."""
    before, here, after, later = taps
    first, third, fourth = weights
    value = torch.addcmul(here, first, before - here)
    value = torch.addcmul(value, third, after - here)
    return torch.addcmul(value, fourth, later - here)


def _map_levels(images: Tensor, operation: Tensor, strength: Tensor, signed: Tensor) -> Tensor:
    """Send every grey level through the image's own table of 256 entries."""
    level = torch.arange(256, dtype=torch.int32, device=images.device)
    strength = strength[:, None, None]
    kept_bits = 4 - (strength * 4).int()
    threshold = 256 - (strength * 256).int()
    added = (strength * 110).int()
    factor = _enhancement(signed)[:, None, None]
    tables = {  # each (B or 1, 3 or 1, 256)
        Operation.AUTOCONTRAST: _autocontrast_table(images, level),
        Operation.EQUALIZE: _equalize_table(images, level),
        Operation.INVERT: 255 - level,
        Operation.POSTERIZE: level >> (8 - kept_bits) << (8 - kept_bits),
        Operation.SOLARIZE: torch.where(level < threshold, level, 255 - level),
        Operation.SOLARIZE_ADD: torch.where(level < 128, (level + added).clamp(max=255), level),
        Operation.CONTRAST: _blend(_mean_grey(images), level, factor),
        Operation.BRIGHTNESS: _blend(torch.zeros_like(level), level, factor),
    }
    chosen = level.expand(len(images), images.shape[1], 256)
    for mapped_by, table in tables.items():
        chosen = torch.where(_is(operation, mapped_by)[:, None, None], table.int(), chosen)
    return chosen.to(torch.uint8).gather(2, images.flatten(2).long()).view_as(images)


def _autocontrast_table(images: Tensor, level: Tensor) -> Tensor:
    """Stretch each channel to 0..255; a channel of one level stays."""
    low = images.flatten(2).amin(2, keepdim=True).double()
    high = images.flatten(2).amax(2, keepdim=True).double()
    # A tensor of 255s, since a number divided by a tensor is a product with a rounded reciprocal.
    scale = torch.full_like(low, 255) / (high - low).clamp(min=1)
    stretched = (level * scale - low * scale).clamp(0, 255).int()
    return torch.where(high > low, stretched, level)


def _equalize_table(images: Tensor, level: Tensor) -> Tensor:
    """Spread each channel's levels evenly; a channel with too few pixels below its brightest one stays."""
    batch, channels, height, width = images.shape
    pixels = images.flatten(2).long()
    bins = torch.arange(batch * channels, device=images.device).view(batch, channels, 1) * 256 + pixels
    counts = torch.zeros(batch * channels * 256, dtype=torch.int32, device=images.device)
    counts = counts.scatter_add(0, bins.flatten(), torch.ones_like(bins, dtype=torch.int32).flatten())
    counts = counts.view(batch, channels, 256)
    brightest = counts.gather(2, pixels.amax(2, keepdim=True))
    step = (height * width - brightest) // 255
    below = counts.cumsum(2, dtype=torch.int32) - counts
    spread = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, spread, level)


def _grey(images: Tensor) -> Tensor:
    """Take the luma of ITU-R 601 in Pillow's fixed-point arithmetic."""
    red, green, blue = images.int().unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16)[:, None]  # (B, 1, H, W)


def _mean_grey(images: Tensor) -> Tensor:
    """Round the mean luma half up, in whole numbers."""
    count = images.shape[-2] * images.shape[-1]
    return ((_grey(images).flatten(2).sum(2, keepdim=True) * 2 + count) // (2 * count)).int()


def _smooth(images: Tensor) -> Tensor:
    """Average over 3 x 3 pixels, the middle counting 5 of 13; the border stays as it is."""
    pixels = images.int()
    lines = pixels[..., :-2] + pixels[..., 1:-1] + pixels[..., 2:]
    around = lines[..., :-2, :] + lines[..., 1:-1, :] + lines[..., 2:, :]
    inner = pixels[..., 1:-1, 1:-1]
    smoothed = ((around + 4 * inner) * 2 + 13) // 26
    return torch.nn.functional.pad(smoothed - inner, (1, 1, 1, 1)) + pixels


def _enhancement(signed: Tensor) -> Tensor:
    """Move away from factor 1, no change, towards 0.1 (all degraded) or 1.9 (exaggerated)."""
    return (1.0 + 0.9 * signed).clamp(min=0.1).float()


def _blend(degraded: Tensor, original: Tensor, factor: Tensor) -> Tensor:
    """Go from the degraded to the original pixels and beyond, truncating as Pillow does."""
    return (degraded + factor * (original - degraded)).clamp(0, 255).int()


def _blend_with_degraded(images: Tensor, operation: Tensor, signed: Tensor) -> Tensor:
    """Change saturation against a grey copy, or sharpness against a smooth one."""
    is_colour = _is(operation, Operation.COLOUR)
    blended = is_colour | _is(operation, Operation.SHARPNESS)
    factor = torch.where(blended, _enhancement(signed), 1.0)[:, None, None, None]
    degraded = torch.where(is_colour[:, None, None, None], _grey(images), _smooth(images))
    return _blend(degraded, images.int(), factor).to(torch.uint8)
