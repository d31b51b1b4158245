"""The eye's kernel sees what the readable eye sees, to the last bit."""

import pytest
import torch

from gcab.fast.eye import FastEye
from gcab.fast.fused_attention import HAS_TRITON
from gcab.model.eye import SHARP_SIDE, SIDE, Eye

needs_gpu = pytest.mark.skipif(not (torch.cuda.is_available() and HAS_TRITON), reason="needs a GPU and Triton")


def images_of(shape: tuple[int, ...]) -> torch.Tensor:
    images = torch.randint(256, shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    images[0, :, : shape[2] // 3] = 77  # flat
    return images


@pytest.mark.parametrize("mirrored", [False, True])
def test_without_a_gpu_it_is_the_readable_eye(mirrored: bool) -> None:
    images = images_of((3, 3, 32, 32))
    assert torch.equal(FastEye(64, mirrored)(images), Eye(64, mirrored)(images))


@needs_gpu
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("features", [32, 1056, 4096])
@pytest.mark.parametrize("shape", [(1, 3, 32, 32), (70, 3, 32, 32), (9, 1, 8, 8), (5, 7, 40, 30), (3, 3, 64, 64)])
def test_the_kernel_sees_the_same_to_the_last_bit(
    mirrored: bool, features: int, shape: tuple[int, int, int, int]
) -> None:
    images = images_of(shape)
    for side in (SIDE, SHARP_SIDE):
        fast, readable = FastEye(features, mirrored, side, tones=16).cuda(), Eye(features, mirrored, side, tones=16)
        assert torch.equal(fast(images.cuda()).cpu(), readable(images))


@needs_gpu
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("count", [3, 100])
def test_features_to_decide_with_are_those_to_sum_up_to_rounding(mirrored: bool, count: int) -> None:
    images, eye = images_of((count, 3, 32, 32)).cuda(), FastEye(1056, mirrored).cuda()
    assert (eye.unrounded(images) - eye(images)).abs().max() < 4
    assert (eye.unrounded(images) - eye(images)).abs().mean() < 0.5
