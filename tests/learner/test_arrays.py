"""Images in every form people hold them become the same bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gcab.data.arrays import as_images, natural_size, suitable_size
from gcab.errors import GcabError

COLOUR = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)  # (n, H, W, 3)
EXPECTED = torch.from_numpy(COLOUR.transpose(0, 3, 1, 2).copy())


def files(folder: Path) -> list[Path]:
    paths = [folder / f"{index}.png" for index in range(len(COLOUR))]
    for path, pixels in zip(paths, COLOUR, strict=True):
        Image.fromarray(pixels).save(path)
    return paths


@pytest.mark.parametrize(
    "images",
    [
        COLOUR,
        COLOUR.transpose(0, 3, 1, 2),
        COLOUR.astype(np.int64),
        COLOUR / 255,
        (COLOUR / 255).astype(np.float32),
        EXPECTED,
        (EXPECTED / 255).requires_grad_(),
        list(COLOUR),
        tuple(EXPECTED),
        [Image.fromarray(pixels) for pixels in COLOUR],
        [COLOUR[0], EXPECTED[1], Image.fromarray(COLOUR[2])],
    ],
)
def test_every_form_gives_the_same_bytes(images: Any) -> None:
    converted = as_images(images, 8)
    assert converted.dtype == torch.uint8
    assert torch.equal(converted, EXPECTED)


def test_a_single_picture_is_a_batch_of_one() -> None:
    assert torch.equal(as_images(Image.fromarray(COLOUR[0]), 8), EXPECTED[:1])
    assert natural_size(Image.fromarray(COLOUR[0])) == 8


def test_paths(tmp_path: Path) -> None:
    paths = files(tmp_path)
    for given in (paths, [str(path) for path in paths], np.array([str(path) for path in paths])):
        assert torch.equal(as_images(given, 8), EXPECTED)
        assert natural_size(given) == 8


def test_grey_and_truth_values_fill_three_channels() -> None:
    grey = np.arange(128, dtype=np.uint8).reshape(2, 8, 8)
    converted = as_images(grey, 8)
    assert torch.equal(converted, torch.from_numpy(grey)[:, None].expand(-1, 3, -1, -1))
    assert torch.equal(as_images(grey[..., None], 8), converted)
    assert torch.equal(as_images(grey > 63, 8)[:, 0], (torch.from_numpy(grey) > 63) * torch.tensor(255).byte())


def test_brain_floats() -> None:
    assert torch.equal(as_images(torch.ones(1, 3, 8, 8, dtype=torch.bfloat16), 8), torch.full((1, 3, 8, 8), 255).byte())


def test_the_centre_is_cut_out() -> None:
    wide = np.zeros((1, 4, 10), dtype=np.uint8)
    wide[0, :, 3:7] = 200
    assert torch.equal(as_images(wide, 4), torch.full((1, 3, 4, 4), 200).byte())
    assert torch.equal(as_images(wide.transpose(0, 2, 1), 4), torch.full((1, 3, 4, 4), 200).byte())


def test_a_wide_centre_is_cut_out() -> None:
    tall = np.zeros((1, 9, 8), dtype=np.uint8)
    tall[0, 2:6] = 200
    assert torch.equal(as_images(tall, (4, 8)), torch.full((1, 3, 4, 8), 200).byte())
    assert torch.equal(as_images(tall, (2, 4)), torch.full((1, 3, 2, 4), 200).byte())


def test_another_size() -> None:
    assert torch.equal(as_images(np.full((2, 20, 20), 77, np.uint8), 8), torch.full((2, 3, 8, 8), 77).byte())


def test_images_of_different_sizes_and_kinds() -> None:
    pictures = [
        Image.new("RGB", (9, 30), (10, 20, 30)),
        Image.new("L", (8, 8), 40),
        Image.new("RGBA", (100, 12), (0, 0, 0, 0)),
        Image.new("1", (17, 17), 1),
    ]
    converted = as_images(pictures, 8)
    assert [image[:, 0, 0].tolist() for image in converted] == [[10, 20, 30], [40] * 3, [255] * 3, [255] * 3]


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((2, 28, 28), 32),
        ((2, 8, 8), 8),
        ((2, 5, 200), 8),
        ((2, 3, 32, 32), 32),
        ((2, 32, 48, 3), 32),
        ((2, 300, 300, 3), 64),
        ((2, 3, 3, 3), 8),
    ],
)
def test_a_size_that_suits_the_images(shape: tuple[int, ...], size: int) -> None:
    assert natural_size(np.zeros(shape, np.uint8)) == size
    assert natural_size(list(torch.zeros(shape))) == size


def test_a_size_that_suits_pictures() -> None:
    assert natural_size([Image.new("RGB", (50, 41))]) == 32
    assert natural_size([Image.new("RGB", (50, side)) for side in (9, 9, 47, 48, 49)]) == 64  # most of them


@pytest.mark.parametrize(
    ("sides", "size"), [((0, 8, 11), 8), ((12, 16, 22), 16), ((23, 28, 32, 40, 45), 32), ((46, 64, 84, 500), 64)]
)
def test_sizes_are_few_and_near(sides: tuple[int, ...], size: int) -> None:
    assert {suitable_size(side) for side in sides} == {size}


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        ([], "no images were given"),
        (COLOUR[:0], "no images were given"),
        (5, "not int: put a single image in a list"),
        (None, "not NoneType"),
        ("cat.png", "not str"),
        (Path("cat.png"), "not PosixPath"),
        (torch.tensor(3), "not ndarray"),
        (iter(COLOUR), "not iterator"),
        (COLOUR[0], r"not \(8, 8, 3\): put a single image in a list"),
        (COLOUR[0, :, :, 0], r"not \(8, 8\)"),
        (np.zeros((2, 8, 8, 4), np.uint8), r"not \(2, 8, 8, 4\)"),
        (np.zeros((2, 2, 8, 8, 3), np.uint8), r"not \(2, 2, 8, 8, 3\)"),
        (np.zeros((2, 0, 8, 3), np.uint8), r"not \(2, 0, 8, 3\)"),
        (COLOUR.astype(float), "between 0 and 1"),
        (COLOUR / 255 - 1, "between 0 and 1"),
        (np.full((2, 8, 8), np.nan), "between 0 and 1"),
        (COLOUR.astype(int) - 300, "between 0 and 255"),
        (COLOUR.astype(int) + 300, "between 0 and 255"),
        (COLOUR.astype(complex), "images of complex128 cannot be read"),
        ([1, 2], "image 0 is a int: give arrays, PIL images or paths"),
        ([COLOUR[0], None], "image 1 is a NoneType"),
        (COLOUR.tolist(), "image 0 is a list"),
        (["nowhere.png"], "image nowhere.png cannot be opened"),
        ([np.array(["nested.png"])], "image 0 is a ndarray"),
    ],
)
def test_what_cannot_be_an_image_is_refused(images: Any, expected: str) -> None:
    with pytest.raises(GcabError, match=expected):
        as_images(images, 8)


def test_a_missing_file_has_no_natural_size(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match="cannot be opened"):
        natural_size([tmp_path / "nowhere.png"])
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(GcabError, match="not an image"):
        natural_size([tmp_path / "bad.png"])
