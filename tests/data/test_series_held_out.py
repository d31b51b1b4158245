"""Photos of one burst or track are held out together, or not at all."""

import pytest
import torch
from torch import Tensor

from gcab.data.hold_out import held_out


def bursts(scenes: int, frames: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Frames of scenes that differ by a little noise, in any order, and the scene of each."""
    random = torch.Generator().manual_seed(seed)
    scene = torch.arange(scenes).repeat_interleave(frames)[torch.randperm(scenes * frames, generator=random)]
    views = torch.randint(0, 256, (scenes, 3, 16, 16), generator=random)[scene].float()
    noise = 8 * torch.randn(views.shape, generator=random)
    return (views + noise).round().clamp(0, 255).to(torch.uint8), scene


def parted(chosen: Tensor, scene: Tensor) -> int:
    """How many scenes have frames on both sides."""
    return sum(len(chosen[scene == number].unique()) == 2 for number in scene.unique().tolist())


@pytest.mark.parametrize(("scenes", "frames", "count"), [(12, 5, 10), (30, 3, 18), (3, 2, 2)])
def test_no_held_out_photo_has_a_neighbour_in_training(scenes: int, frames: int, count: int) -> None:
    images, scene = bursts(scenes, frames)
    labels = torch.zeros(len(images), dtype=torch.int64)
    chosen = held_out(images, labels, 0.2, apart=True)
    assert (int(chosen.sum()), parted(chosen, scene)) == (count, 0)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    assert torch.equal(held_out(images[order], labels, 0.2, apart=True), chosen[order])
    assert scenes == 3 or parted(held_out(images, labels, 0.2), scene) > 0


def test_photos_without_neighbours_are_chosen_as_ever() -> None:
    images, labels = bursts(20, 1)[0], torch.arange(20) % 2
    assert torch.equal(held_out(images, labels, 0.2, apart=True), held_out(images, labels, 0.2))


def test_a_class_of_one_series_is_parted_all_the_same() -> None:
    images = torch.full((10, 3, 16, 16), 7, dtype=torch.uint8)
    assert int(held_out(images, torch.zeros(10, dtype=torch.int64), 0.2, apart=True).sum()) == 2
