"""The whole way from bytes to the network's input: crops, flip, normalisation, seeds, tracing."""

import math
import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gcab.data.augment import Augment, AugmentConfig, Choices, normalise
from gcab.data.randaugment import Layer, Operation
from gcab.errors import GcabError

pytestmark = pytest.mark.repeats

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def random_images(batch: int, height: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (batch, 3, height, width), dtype=torch.uint8, generator=generator)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def without_randaugment(crop: str, flip: bool = False, padding: int = 4) -> Augment:
    """Mean 0 and deviation 1/255 make the output the bytes themselves."""
    config = AugmentConfig(crop=crop, flip=flip, padding=padding, randaugment=False)  # type: ignore[arg-type]
    return Augment(config, (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))


def as_bytes(output: Tensor) -> Tensor:
    return output.round().to(torch.uint8)


def choices_for(boxes: list[tuple[int, int, int, int]], flipped: list[bool]) -> Choices:
    return Choices(torch.tensor(boxes), torch.tensor(flipped), ())


def test_normalise_hand_computed() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    values = normalise(images, (0.5, 0.1, 0.25), (0.5, 0.2, 0.25))
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.flatten(), torch.tensor([-1.0, 0.5, 3.0]))


def test_floats_are_refused_instead_of_scaled_twice() -> None:
    with pytest.raises(TypeError, match="uint8"):
        normalise(torch.rand(2, 3, 4, 4), MEAN, STD)
    with pytest.raises(TypeError, match="uint8"):
        Augment(AugmentConfig(), MEAN, STD)(torch.rand(2, 3, 8, 8), seeded(0))


def test_nothing_random_is_normalise() -> None:
    images = random_images(5, 8, 10)
    config = AugmentConfig(crop="none", flip=False, randaugment=False)
    assert torch.equal(Augment(config, MEAN, STD)(images, seeded(0)), normalise(images, MEAN, STD))


def test_padded_crop_is_a_window_of_the_black_bordered_image() -> None:
    images = random_images(40, 9, 7)
    augment = without_randaugment("pad", padding=3)
    choices = augment.draw(40, 9, 7, seeded(2))
    output = as_bytes(augment.apply(images, choices))
    for image, box, result in zip(images, choices.box.tolist(), output, strict=True):
        bordered = torch.zeros(3, 15, 13, dtype=torch.uint8)
        bordered[:, 3:12, 3:10] = image
        top, left = box[0] + 3, box[1] + 3
        assert torch.equal(result, bordered[:, top : top + 9, left : left + 7])


def test_padded_crop_reaches_every_offset_equally() -> None:
    choices = without_randaugment("pad").draw(40_000, 32, 32, seeded(0))
    corner = choices.box[:, :2] + 4
    counts = torch.bincount(corner[:, 0] * 9 + corner[:, 1], minlength=81) / 40_000
    assert len(counts) == 81
    assert (counts - 1 / 81).abs().max() < 0.003
    assert (choices.box[:, 2:] == 32).all()


@pytest.mark.parametrize("crop", ["pad", "resized", "none"])
def test_flip_mirrors_the_crop_and_half_of_the_images(crop: str) -> None:
    images = random_images(200, 8, 6)
    augment = without_randaugment(crop, flip=True, padding=2)
    choices = augment.draw(200, 8, 6, seeded(0))
    output = as_bytes(augment.apply(images, choices))
    unflipped = choices._replace(flipped=torch.zeros(200, dtype=torch.bool))
    straight = as_bytes(augment.apply(images, unflipped))
    expected = torch.where(choices.flipped[:, None, None, None], straight.flip(3), straight)
    assert torch.equal(output, expected)
    assert 75 < choices.flipped.sum() < 125


def test_resized_crop_equals_pillow() -> None:
    height, width = 24, 32
    draw = random.Random(0)
    boxes = [(0, 0, height, width), (5, 7, 1, 1), (23, 0, 1, 32), (0, 30, 24, 2), (2, 3, 12, 16)]
    for _ in range(40):
        sides = draw.randint(2, height), draw.randint(2, width)
        boxes.append((draw.randint(0, height - sides[0]), draw.randint(0, width - sides[1]), *sides))
    images = random_images(len(boxes), height, width)
    images[::3] = images[::3] // 128 * 255  # hard edges overshoot and must be clipped between the two passes
    augment = without_randaugment("resized")
    output = as_bytes(augment.apply(images, choices_for(boxes, [False] * len(boxes))))
    for image, (top, left, box_height, box_width), result in zip(images, boxes, output, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
        cut = picture.crop((left, top, left + box_width, top + box_height))
        resized = cut.resize((width, height), Image.Resampling.BICUBIC)
        assert torch.equal(result, torch.from_numpy(np.array(resized)).permute(2, 0, 1))


def test_resized_boxes_lie_inside_with_the_right_areas_and_ratios() -> None:
    size = 64
    box = without_randaugment("resized").draw(20_000, size, size, seeded(0)).box
    top, left, height, width = box.unbind(1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= size).all()
    assert (left + width <= size).all()
    share = (height * width) / size**2
    assert share.min() > 0.07
    assert share.max() == 1.0
    log_ratio = (width / height).log()
    assert log_ratio.abs().max() < math.log(4 / 3) + 0.06  # sides are whole pixels
    assert abs(log_ratio.mean()) < 0.01
    # Most refused tries are large; a plain simulation of the published procedure gives the mean share.
    assert abs(share.mean() - simulated_share(size)) < 0.01
    room = size - height
    free = room > 10
    assert abs((top[free] / room[free]).mean() - 0.5) < 0.01
    assert (top[free] == room[free]).any()
    roomy = (height < size - 10) & (width < size - 10)
    places = torch.stack([top / (size - height), left / (size - width)])[:, roomy]
    assert (places.mean(dim=1) - 0.5).abs().max() < 0.01
    assert abs(places.corrcoef()[0, 1]) < 0.03  # not along the diagonal only


def simulated_share(size: int) -> float:
    draw = random.Random(1)
    shares = []
    for _ in range(20_000):
        for _ in range(10):
            area = size * size * draw.uniform(0.08, 1)
            ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if width <= size and height <= size:
                shares.append(width * height / size**2)
                break
        else:
            shares.append(1.0)
    return sum(shares) / len(shares)


@pytest.mark.parametrize(("height", "width"), [(64, 256), (256, 64)])
def test_a_box_of_a_wide_image_is_stretched_no_more_than_one_of_a_square(height: int, width: int) -> None:
    box = without_randaugment("resized").draw(5_000, height, width, seeded(0)).box
    top, left, box_height, box_width = box.unbind(1)
    assert (top + box_height <= height).all()
    assert (left + box_width <= width).all()
    stretch = (box_width / box_height * (height / width)).log()
    assert stretch.abs().max() < math.log(4 / 3) + 0.06
    assert abs(stretch.mean()) < 0.01
    share = (box_height * box_width) / (height * width)
    assert share.min() > 0.07
    assert abs(share.mean() - simulated_share(128)) < 0.02


def test_same_seed_same_views_and_another_seed_others() -> None:
    images = random_images(16, 16, 16)
    augment = Augment(AugmentConfig(), MEAN, STD)
    once, again = augment(images, seeded(7)), augment(images, seeded(7))
    assert torch.equal(once, again)
    assert not torch.equal(once, augment(images, seeded(8)))
    generator = seeded(7)
    assert not torch.equal(augment(images, generator), augment(images, generator))


def test_copies_of_one_image_become_different_views() -> None:
    images = random_images(1, 16, 16).expand(64, -1, -1, -1)
    views = Augment(AugmentConfig(), MEAN, STD)(images, seeded(0))
    assert len({view.numpy().tobytes() for view in views}) > 60


def test_global_random_state_is_neither_used_nor_moved() -> None:
    images = random_images(4, 16, 16)
    before = torch.get_rng_state()
    Augment(AugmentConfig(crop="resized"), MEAN, STD)(images, seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("crop", ["pad", "resized"])
def test_an_image_does_not_depend_on_its_neighbours(crop: str) -> None:
    images = random_images(12, 16, 16)
    augment = Augment(AugmentConfig(crop=crop), MEAN, STD)  # type: ignore[arg-type]
    choices = augment.draw(12, 16, 16, seeded(5))
    together = augment.apply(images, choices)
    for row in range(12):
        part = slice(row, row + 1)
        layers = tuple(Layer(*(choice[part] for choice in layer)) for layer in choices.layers)
        own = Choices(choices.box[part], choices.flipped[part], layers)
        assert torch.equal(augment.apply(images[part], own)[0], together[row])


def test_the_default_is_what_the_authors_do() -> None:
    """Crops of four black pixels around, flips, and `rand-m9-mstd0.5-inc1` with timm's two operations at one half."""
    assert AugmentConfig() == AugmentConfig(
        crop="pad",
        padding=4,
        flip=True,
        randaugment=True,
        operations=2,
        magnitude=9.0,
        magnitude_std=0.5,
        probability=0.5,
    )


def test_number_of_layers_follows_the_config() -> None:
    for operations, randaugment, expected in ((2, True, 2), (3, True, 3), (2, False, 0), (0, True, 0)):
        config = AugmentConfig(operations=operations, randaugment=randaugment)
        assert len(Augment(config, MEAN, STD).draw(2, 8, 8, seeded(0)).layers) == expected


def test_layers_are_drawn_as_the_config_says() -> None:
    config = AugmentConfig(magnitude=3.0, magnitude_std=0.0, probability=1.0)
    for layer in Augment(config, MEAN, STD).draw(500, 8, 8, seeded(0)).layers:
        assert (layer.magnitude == 3).all()
        assert layer.applied.all()
    config = AugmentConfig(magnitude=4.0, magnitude_std=1.0, probability=0.2)
    for layer in Augment(config, MEAN, STD).draw(5000, 8, 8, seeded(0)).layers:
        assert layer.magnitude.mean() == pytest.approx(4, abs=0.1)
        assert layer.magnitude.std() == pytest.approx(1, abs=0.1)
        assert layer.applied.float().mean() == pytest.approx(0.2, abs=0.03)


def test_the_crop_comes_before_randaugment() -> None:
    """So an operation sees the black border: inverted, it is white."""
    images = torch.full((1, 3, 8, 8), 255, dtype=torch.uint8)
    yes, no = torch.tensor([True]), torch.tensor([False])
    inverted = Layer(torch.tensor([int(Operation.INVERT)]), yes, torch.tensor([9.0]), no)
    choices = choices_for([(-2, 0, 8, 8)], [False])._replace(layers=(inverted,))
    rows = as_bytes(without_randaugment("pad").apply(images, choices))[0, 0, :, 0]
    assert rows.tolist() == [255] * 2 + [0] * 6


def test_input_bytes_stay_untouched() -> None:
    images = random_images(8, 16, 16)
    copy = images.clone()
    Augment(AugmentConfig(), MEAN, STD)(images, seeded(0))
    assert torch.equal(images, copy)


@pytest.mark.parametrize("crop", ["pad", "resized"])
def test_apply_is_one_graph(crop: str) -> None:
    images = random_images(6, 16, 16)
    augment = Augment(AugmentConfig(crop=crop), MEAN, STD)  # type: ignore[arg-type]
    choices = augment.draw(6, 16, 16, seeded(0))
    traced = torch.compile(augment.apply, fullgraph=True, backend="eager")
    assert torch.equal(traced(images, choices), augment.apply(images, choices))


@pytest.mark.parametrize("crop", ["pad", "resized", "none"])
def test_shapes_never_depend_on_data(crop: str) -> None:
    """Meta tensors hold no values: any read-back or data-dependent shape raises."""
    augment = Augment(AugmentConfig(crop=crop), MEAN, STD)  # type: ignore[arg-type]
    images = random_images(6, 16, 12)
    choices = augment.draw(6, 16, 12, seeded(0))
    layers = tuple(Layer(*(choice.to("meta") for choice in layer)) for layer in choices.layers)
    on_meta = Choices(choices.box.to("meta"), choices.flipped.to("meta"), layers)
    output = augment.apply(images.to("meta"), on_meta)
    assert output.shape == (6, 3, 16, 12)
    assert output.dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": "padd"}, "did you mean 'pad'"),
        ({"padding": -1}, "augment.padding is -1"),
        ({"operations": -2}, "augment.operations"),
        ({"magnitude": 11.0}, "from 0 to 10"),
        ({"magnitude_std": -0.5}, "augment.magnitude_std"),
        ({"probability": 1.5}, "from 0 to 1"),
        ({"probability": math.nan}, "augment.probability"),
    ],
)
def test_bad_options_say_what_to_give(options: dict[str, float], message: str) -> None:
    with pytest.raises(GcabError, match=message):
        AugmentConfig(**options)  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("crop", ["pad", "resized"])
def test_cuda_equals_cpu_without_waiting_and_inside_a_graph(crop: str) -> None:
    augment = Augment(AugmentConfig(crop=crop, probability=1.0), MEAN, STD)  # type: ignore[arg-type]
    images = random_images(256, 32, 32)
    choices = augment.draw(256, 32, 32, seeded(0))
    layers = tuple(Layer(*(choice.cuda() for choice in layer)) for layer in choices.layers)
    on_device = Choices(choices.box.cuda(), choices.flipped.cuda(), layers)
    inputs = images.cuda()
    augment.apply(inputs, on_device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        output = augment.apply(inputs, on_device)
        augment(inputs, torch.Generator("cuda").manual_seed(0))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    wrong = (output.cpu() - augment.apply(images, choices)).abs() > 1e-5
    assert wrong.float().mean() < 1e-3

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = augment.apply(inputs, on_device)
    graph.replay()
    assert torch.equal(recorded, output)
