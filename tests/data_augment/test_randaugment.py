"""Each of the fifteen operations gives what Pillow gives, and the choices follow RandAugment's distribution."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from gcab.data.randaugment import FILL, Layer, Operation, apply_layer, draw_layer

pytestmark = pytest.mark.repeats

MOVES = {
    Operation.ROTATE,
    Operation.SHEAR_X,
    Operation.SHEAR_Y,
    Operation.TRANSLATE_X,
    Operation.TRANSLATE_Y,
}
MAGNITUDES = (0.0, 2.31, 5.07, 7.77, 8.63, 9.0, 9.41, 10.0)
HEIGHT, WIDTH = 31, 26  # not square, so that swapped axes are seen


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def from_pillow(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def noise() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (3, HEIGHT, WIDTH), dtype=torch.uint8, generator=generator)


def landscape() -> Tensor:
    """A smooth image with flat areas, a hard edge and a narrow range of levels in one channel."""
    y, x = torch.meshgrid(torch.linspace(0, 1, HEIGHT), torch.linspace(0, 1, WIDTH), indexing="ij")
    hill = torch.exp(-8 * ((x - 0.4) ** 2 + (y - 0.6) ** 2))
    image = torch.stack([255 * x, 40 + 180 * hill, 90 + 20 * torch.sin(5 * y)])
    image[:, :6, :8] = 200
    image[1, 20:, 16:] = 0
    return image.clamp(0, 255).to(torch.uint8)


def dark_and_bright() -> Tensor:
    """Only the extreme levels, where clipping shows."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 2, (3, HEIGHT, WIDTH), dtype=torch.uint8, generator=generator) * 255


IMAGES = {"noise": noise(), "landscape": landscape(), "extremes": dark_and_bright()}


def with_pillow(image: Tensor, operation: Operation, magnitude: float, negated: bool) -> Tensor:
    """Say each operation again with Pillow's own functions and the published ranges of `inc1`."""
    picture = to_pillow(image)
    strength = magnitude / 10
    signed = -strength if negated else strength
    factor = max(0.1, 1 + 0.9 * signed)

    def affine(*matrix: float) -> Image.Image:
        method, cubic = Image.Transform.AFFINE, Image.Resampling.BICUBIC
        return picture.transform(picture.size, method, matrix, resample=cubic, fillcolor=FILL)

    def posterize(bits: int) -> Image.Image:
        # Pillow of the authors' time turned an image of no bits black; today's refuses.
        return ImageOps.posterize(picture, bits) if bits else Image.new("RGB", picture.size)

    results = {
        Operation.AUTOCONTRAST: lambda: ImageOps.autocontrast(picture),
        Operation.EQUALIZE: lambda: ImageOps.equalize(picture),
        Operation.INVERT: lambda: ImageOps.invert(picture),
        Operation.ROTATE: lambda: picture.rotate(30 * signed, Image.Resampling.BICUBIC, fillcolor=FILL),
        Operation.POSTERIZE: lambda: posterize(4 - int(strength * 4)),
        Operation.SOLARIZE: lambda: ImageOps.solarize(picture, 256 - int(strength * 256)),
        Operation.SOLARIZE_ADD: lambda: picture.point(
            [min(255, level + int(strength * 110)) if level < 128 else level for level in range(256)] * 3
        ),
        Operation.COLOUR: lambda: ImageEnhance.Color(picture).enhance(factor),
        Operation.CONTRAST: lambda: ImageEnhance.Contrast(picture).enhance(factor),
        Operation.BRIGHTNESS: lambda: ImageEnhance.Brightness(picture).enhance(factor),
        Operation.SHARPNESS: lambda: ImageEnhance.Sharpness(picture).enhance(factor),
        Operation.SHEAR_X: lambda: affine(1, 0.3 * signed, 0, 0, 1, 0),
        Operation.SHEAR_Y: lambda: affine(1, 0, 0, 0.3 * signed, 1, 0),
        Operation.TRANSLATE_X: lambda: affine(1, 0, 0.45 * signed * WIDTH, 0, 1, 0),
        Operation.TRANSLATE_Y: lambda: affine(1, 0, 0, 0, 1, 0.45 * signed * HEIGHT),
    }
    return from_pillow(results[operation]())


def layer_of(operation: Operation, magnitudes: Tensor, negated: bool = False, applied: bool = True) -> Layer:
    batch = len(magnitudes)
    return Layer(
        operation=torch.full((batch,), int(operation)),
        applied=torch.full((batch,), applied),
        magnitude=magnitudes,
        negated=torch.full((batch,), negated),
    )


def alone(image: Tensor, operation: Operation, magnitude: float = 9.0, negated: bool = False) -> Tensor:
    return apply_layer(image[None], layer_of(operation, torch.tensor([magnitude]), negated))[0]


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name)
def test_operation_equals_pillow(operation: Operation, name: str, negated: bool) -> None:
    magnitudes = torch.tensor(MAGNITUDES)
    batch = IMAGES[name].expand(len(magnitudes), -1, -1, -1)
    ours = apply_layer(batch, layer_of(operation, magnitudes, negated))
    theirs = torch.stack([with_pillow(IMAGES[name], operation, float(m), negated) for m in magnitudes])
    if operation in MOVES:
        # Pillow truncates what it computed in double precision. Float32 falls on the other side of a whole level
        # rarely, and more often where edges of black and white make whole levels common.
        difference = (ours.int() - theirs.int()).abs()
        assert difference.max() <= 1
        assert (difference > 0).float().mean() < (0.02 if name == "extremes" else 1e-3)
    else:
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name)
def test_operation_changes_a_natural_image_unless_it_is_not_applied(operation: Operation) -> None:
    batch = landscape()[None]
    magnitude = torch.tensor([9.0])
    assert not torch.equal(apply_layer(batch, layer_of(operation, magnitude)), batch)
    assert torch.equal(apply_layer(batch, layer_of(operation, magnitude, applied=False)), batch)


def test_translation_goes_where_its_sign_says() -> None:
    image = torch.zeros(3, 20, 20, dtype=torch.uint8)
    image[:, :, 10] = 250
    moved = alone(image, Operation.TRANSLATE_X, 20 / 4.5 / 2)  # 0.1 of the width: two pixels to the left
    assert moved[0, 5].tolist() == [0] * 8 + [250] + [0] * 9 + [FILL[0]] * 2


@pytest.mark.parametrize("operation", sorted(MOVES), ids=lambda operation: operation.name)
def test_where_pixels_moved_away_there_is_imagenets_mean_colour(operation: Operation) -> None:
    """As timm fills for the authors, whose pipeline gives it ImageNet's means for every data set."""
    image = torch.full((3, HEIGHT, WIDTH), 7, dtype=torch.uint8)
    mean = tuple(round(255 * channel) for channel in (0.485, 0.456, 0.406))
    shown = {tuple(pixel) for pixel in alone(image, operation).flatten(1).T.tolist()}
    assert shown == {(7, 7, 7), mean}


def test_constant_channels_survive_autocontrast_and_equalize() -> None:
    image = landscape()
    image[0] = 77
    for operation in (Operation.AUTOCONTRAST, Operation.EQUALIZE):
        changed = alone(image, operation)
        assert torch.equal(changed, with_pillow(image, operation, 9.0, False))
        assert (changed[0] == 77).all()
        assert not torch.equal(changed[1], image[1])


def test_equalize_leaves_a_channel_with_too_few_pixels_below_the_brightest() -> None:
    image = torch.full((3, HEIGHT, WIDTH), 200, dtype=torch.uint8)
    image[0].view(-1)[:254] = torch.arange(254) % 200  # one less than a step of 255 needs
    image[1].view(-1)[:255] = torch.arange(255) % 200
    changed = alone(image, Operation.EQUALIZE)
    assert torch.equal(changed, with_pillow(image, Operation.EQUALIZE, 9.0, False))
    assert torch.equal(changed[0], image[0])
    assert not torch.equal(changed[1], image[1])


def test_equalize_clips_levels_beyond_white() -> None:
    image = torch.zeros(3, 20, 30, dtype=torch.uint8)
    image[:, 0, :10] = torch.arange(10, dtype=torch.uint8) + 100
    image[:, -1] = 254  # 570 pixels below: a step of 2 counts to 285
    assert torch.equal(alone(image, Operation.EQUALIZE), with_pillow(image, Operation.EQUALIZE, 9.0, False))
    assert alone(image, Operation.EQUALIZE)[0, -1, -1] == 255


def test_autocontrast_hand_computed() -> None:
    image = torch.tensor([50, 100, 150], dtype=torch.uint8).expand(3, 2, 3)
    assert alone(image, Operation.AUTOCONTRAST)[0, 0].tolist() == [0, 127, 255]


def test_every_image_gets_its_own_operation_whatever_its_neighbours() -> None:
    generator = torch.Generator().manual_seed(3)
    batch = torch.randint(0, 256, (30, 3, HEIGHT, WIDTH), dtype=torch.uint8, generator=generator)
    layer = Layer(
        operation=torch.arange(30) % 15,
        applied=torch.arange(30) % 7 != 0,
        magnitude=torch.linspace(5, 10, 30),
        negated=torch.arange(30) % 2 == 0,
    )
    together = apply_layer(batch, layer)
    for row in range(30):
        one = Layer(*(choice[row : row + 1] for choice in layer))
        assert torch.equal(together[row], apply_layer(batch[row : row + 1], one)[0])


def test_choices_follow_the_distribution() -> None:
    batch = 60_000
    layer = draw_layer(batch, 9.0, 0.5, 0.5, torch.Generator().manual_seed(0))
    frequencies = torch.bincount(layer.operation, minlength=15) / batch
    assert len(frequencies) == 15
    assert (frequencies - 1 / 15).abs().max() < 0.005
    assert abs(layer.applied.float().mean() - 0.5) < 0.01
    assert abs(layer.negated.float().mean() - 0.5) < 0.01
    assert layer.magnitude.max() == 10.0
    assert abs((layer.magnitude == 10.0).float().mean() - 0.0228) < 0.003  # two deviations above the mean
    assert abs(layer.magnitude.median() - 9.0) < 0.02
    below = layer.magnitude[layer.magnitude < 9.0] - 9.0
    assert abs(below.square().mean().sqrt() - 0.5) < 0.02
    numbers = torch.stack([layer.operation, layer.applied, layer.magnitude, layer.negated]).double()
    assert (numbers.corrcoef() - torch.eye(4)).abs().max() < 0.02  # no choice follows from another


def test_magnitude_is_clipped_below_zero() -> None:
    layer = draw_layer(1000, 0.0, 3.0, 0.5, torch.Generator().manual_seed(0))
    assert layer.magnitude.min() == 0.0
    assert abs((layer.magnitude == 0.0).float().mean() - 0.5) < 0.05


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_probability_reaches_its_ends(probability: float) -> None:
    layer = draw_layer(500, 9.0, 0.5, probability, torch.Generator().manual_seed(0))
    assert (layer.applied == bool(probability)).all()
