"""From bytes to the network's input: random crop, flip and RandAugment, batched and on the images' device.

All random numbers are drawn first (`Augment.draw`); the rest (`Augment.apply`) is a pure function of tensors
with fixed shapes that never synchronises with the device, so that it can be compiled and recorded as a CUDA graph. The
order is that of the authors' pipeline: crop, flip, RandAugment, normalise.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from gcab.data.mixing import Boxes, Mixed, draw_boxes, mix
from gcab.data.randaugment import STRONGEST, Layer, apply_layer, draw_layer, per_channel
from gcab.errors import GcabError, unknown
from gcab.model.exact import at, in_double

Crop = Literal["pad", "resized", "none"]
Channels = tuple[float, float, float]


@dataclass(frozen=True)
class AugmentConfig:
    """What the authors' code does to CIFAR images, as the paper is silent; larger ones take `crop="resized"`."""

    crop: Crop = "pad"
    padding: int = 4  # black pixels around the image before a crop of the old size
    flip: bool = True
    randaugment: bool = True
    operations: int = 2
    magnitude: float = 9.0
    magnitude_std: float = 0.5
    probability: float = 0.5
    cutmix: float = 0.0  # probability that a box of an image is another one's; not in the paper

    def __post_init__(self) -> None:
        if self.crop not in get_args(Crop):
            raise unknown("crop", self.crop, get_args(Crop))
        highest = {"magnitude": STRONGEST, "probability": 1.0, "cutmix": 1.0}
        for name in ("padding", "operations", "magnitude", "magnitude_std", "probability", "cutmix"):
            value, limit = getattr(self, name), highest.get(name, math.inf)
            if not 0 <= value <= limit:
                raise GcabError(f"augment.{name} is {value}: give a number from 0 to {limit:g}.")


class Choices(NamedTuple):
    """Every random decision for a batch, one row per image."""

    box: Tensor  # (B, 4) int64: top, left, height, width of the crop, in pixels of the image
    flipped: Tensor  # (B,) bool
    layers: tuple[Layer, ...]


class Augment:
    """Random augmentation and normalisation of training images, different at every call."""

    compiled = ("crop", "change", "normalise")  # separately, so that layers share a compiled graph

    def __init__(self, config: AugmentConfig, mean: Channels, std: Channels) -> None:
        self.config, self.mean, self.std = config, mean, std

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Uint8 images (B, 3, H, W), augmented and normalised, on their device; the generator's must have float64."""
        batch, _, height, width = images.shape
        choices = self.draw(batch, height, width, generator)
        return at(self.apply(at(images, in_double(images.device)), choices), images.device)

    def draw(self, batch: int, height: int, width: int, generator: torch.Generator) -> Choices:
        """Decide everything that is random for a batch of images of one size."""
        config, device = self.config, generator.device
        if config.crop == "resized":
            box = _draw_resized_box(batch, height, width, generator)
        else:
            padding = config.padding if config.crop == "pad" else 0
            corner = torch.randint(-padding, padding + 1, (batch, 2), generator=generator, device=device)
            box = torch.cat([corner, _same_for_all(batch, (height, width), corner)], dim=1)
        flip_below = 0.5 if config.flip else 0.0
        return Choices(
            box=box,
            flipped=torch.rand(batch, generator=generator, device=device) < flip_below,
            layers=tuple(
                draw_layer(batch, config.magnitude, config.magnitude_std, config.probability, generator)
                for _ in range(config.operations if config.randaugment else 0)
            ),
        )

    def apply(self, images: Tensor, choices: Choices) -> Tensor:
        """Carry out the decisions, without any randomness of its own."""
        _require_bytes(images)
        images = self.crop(images, choices.box, choices.flipped)
        for layer in choices.layers:
            images = self.change(images, layer)
        return self.normalise(images)

    def mix(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Mixed | None]:
        """CutMix of augmented images, if the configuration asks for it."""
        if self.config.cutmix == 0:
            return images, None
        return mix(images, labels, self.draw_boxes(len(images), generator))

    def draw_boxes(self, batch: int, generator: torch.Generator) -> Boxes:
        return draw_boxes(batch, self.config.cutmix, generator)

    def crop(self, images: Tensor, box: Tensor, flipped: Tensor) -> Tensor:
        return (_crop_resized if self.config.crop == "resized" else _crop_shifted)(images, box, flipped)

    def change(self, images: Tensor, layer: Layer) -> Tensor:
        return apply_layer(images, layer)

    def normalise(self, images: Tensor) -> Tensor:
        return normalise(images, self.mean, self.std)


def normalise(images: Tensor, mean: Channels, std: Channels) -> Tensor:
    """Turn bytes (B, 3, H, W) into float32 of the data set's mean and deviation: all that evaluation does."""
    _require_bytes(images)
    scaled = images.float() / 255
    return (scaled - per_channel(mean, scaled)) / per_channel(std, scaled)


def denormalise(images: Tensor, mean: Channels, std: Channels) -> Tensor:
    """Inverse of `normalise`: integers from 0 to 255, as float32."""
    return ((images.float() * per_channel(std, images) + per_channel(mean, images)) * 255).round().clamp(0, 255)


def _require_bytes(images: Tensor) -> None:
    if images.dtype != torch.uint8:
        raise TypeError(f"images must be uint8, got {images.dtype}")


def _same_for_all(batch: int, values: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.stack([torch.full((batch,), value, dtype=like.dtype, device=like.device) for value in values], 1)


def _draw_resized_box(batch: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Pick 8 to 100 % of the area: the first try of ten that fits, else all of it.

    Its aspect ratio is 3:4 to 4:3 times the image's own, to which it is stretched; test images are not stretched.
    """
    tries, ratios = 10, (3 / 4, 4 / 3)
    draws = torch.rand(4, batch, tries, generator=generator, device=generator.device).double()
    size, shape, corner = draws[0], draws[1], draws[2:].permute(1, 2, 0)
    area = height * width * (0.08 + 0.92 * size)  # (B, tries)
    log_ratio = math.log(width / height) + math.log(ratios[0]) + math.log(ratios[1] / ratios[0]) * shape
    sides = torch.stack([area / log_ratio.exp(), area * log_ratio.exp()], 2).sqrt().round().clamp(min=1)
    room = torch.stack([height - sides[..., 0], width - sides[..., 1]], 2)
    fits = (room >= 0).all(2)
    offset = torch.floor(corner * (room + 1)).minimum(room)
    boxes = torch.cat([offset, sides], 2)  # (B, tries, 4)
    first = fits.int().argmax(1)[:, None, None].expand(-1, 1, 4)
    box = boxes.gather(1, first)[:, 0].long()
    return torch.where(fits.any(1, keepdim=True), box, _same_for_all(batch, (0, 0, height, width), box))


def _target_columns(flipped: Tensor, width: int) -> Tensor:
    """Number the columns of the output before the flip, so that flipping costs no pass of its own."""
    columns = torch.arange(width, device=flipped.device)
    return torch.where(flipped[:, None], width - 1 - columns, columns)  # (B, W)


def _crop_shifted(images: Tensor, box: Tensor, flipped: Tensor) -> Tensor:
    """Cut a window of the image's own size, black where it reaches beyond the image."""
    _, channels, height, width = images.shape
    rows = box[:, 0, None] + torch.arange(height, device=images.device)  # (B, H)
    columns = box[:, 1, None] + _target_columns(flipped, width)  # (B, W)
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
    index = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None]  # (B, H, W)
    pixels = images.flatten(2).gather(2, index.flatten(1)[:, None].expand(-1, channels, -1)).view_as(images)
    return pixels * inside[:, None]


def _crop_resized(images: Tensor, box: Tensor, flipped: Tensor) -> Tensor:
    """Enlarge the box to the whole image as Pillow's bicubic `resize`: first along rows, then columns."""
    height, width = images.shape[-2:]
    top, left, box_height, box_width = box[:, :, None].unbind(1)  # each (B, 1)
    wide = _enlarge_rows(images, left, box_width, _target_columns(flipped, width))
    rows = torch.arange(height, device=images.device).expand(len(images), -1)
    return _enlarge_rows(wide.transpose(2, 3), top, box_height, rows).transpose(2, 3).contiguous()


def _enlarge_rows(images: Tensor, start: Tensor, length: Tensor, targets: Tensor) -> Tensor:
    """Interpolate part of each row in Pillow's 22-bit fixed point; nothing shrinks, so nothing is antialiased."""
    centre = (targets + 0.5) * (length.double() / targets.shape[1])  # (B, W)
    nearest = torch.floor(centre - 0.5)
    taps = torch.stack([nearest + tap for tap in range(-1, 3)])  # (4, B, W)
    distance = (taps + 0.5 - centre).abs()
    weights = cubic(distance) * ((taps >= 0) & (taps < length))
    weights = weights / weights.sum(0)
    weights = torch.floor(weights * 2**22 + 0.5).int()

    batch, channels, rows, _ = images.shape
    indices = (start + taps.long().clamp(min=0).minimum(length - 1))[:, :, None, None]  # (4, B, 1, 1, W)
    pixels = images.int()
    total = torch.full_like(pixels, 2**21)
    for index, weight in zip(indices, weights[:, :, None, None], strict=True):
        total = total + weight * pixels.gather(3, index.expand(batch, channels, rows, -1))
    return (total >> 22).clamp(0, 255).to(torch.uint8)


def cubic(distance: Tensor) -> Tensor:
    """Keys' kernel with a = -1/2, which Pillow resizes with."""
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((2.5 - 0.5 * distance) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
