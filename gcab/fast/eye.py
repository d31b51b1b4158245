"""The eye on a GPU: one kernel compares, normalises, rectifies and pools, and writes nothing in between.

What it computes is `Eye.answers`, to the last bit: all of it are whole numbers, whose products and sums are exact, and
divisions and roots that are rounded the same everywhere.
"""

import torch
from torch import Tensor

from gcab.fast.fused_attention import HAS_TRITON
from gcab.model.eye import CELLS, FLAT, PER_FILTER, SHARES, STEPS, THRESHOLD, Eye

PLACES, FILTERS, PIXELS = 64, 128, 128  # that a program handles at once
WARPS = 4


class FastEye(Eye):
    """The same eye; on a GPU a kernel looks."""

    def __init__(self, features: int, mirrored: bool = False) -> None:
        super().__init__(features, mirrored)
        for size in SHARES:
            kernels = getattr(self, f"kernels{size}").flatten(1)
            missing = -kernels.shape[1] % PIXELS
            padded = torch.nn.functional.pad(kernels, (0, missing)).to(torch.int8)
            self.register_buffer(f"padded{size}", padded, persistent=False)
            self.register_buffer(f"factors{size}", STEPS * getattr(self, f"scales{size}"), persistent=False)

    def answers(self, images: Tensor, size: int) -> Tensor:
        if not (HAS_TRITON and images.is_cuda):
            return super().answers(images, size)
        kernels, factors = getattr(self, f"padded{size}"), getattr(self, f"factors{size}")
        sums = eye_answers(images.to(torch.uint8), kernels, factors, size, self.mirrored)
        places = images.shape[-1] - size + 1
        window = places - places // CELLS * (CELLS - 1)
        return sums * (1 / (STEPS * window**2))


@torch.library.custom_op("gcab::eye_answers", mutates_args=())
def eye_answers(images: Tensor, kernels: Tensor, factors: Tensor, size: int, mirrored: bool) -> Tensor:
    """Answers of filters (K, padded) to images (B, 3, side, side) as bytes, summed in each cell: (looks, B, 8 K)."""
    from gcab.fast.eye_kernels import answers_kernel

    looks, batch, side = 1 + mirrored, len(images), images.shape[-1]
    filters, padded = kernels.shape
    sums = images.new_empty(batch, looks, PER_FILTER * filters, dtype=torch.float32)
    answers_kernel[(batch * looks, -(-filters // FILTERS), CELLS**2)](
        images.contiguous(), kernels, factors, sums, looks, side=side, size=size, places=side - size + 1, cells=CELLS,
        filters=filters, padded=padded, faint=THRESHOLD * STEPS, flat=FLAT, some_places=PLACES, some_filters=FILTERS,
        some_pixels=PIXELS, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return sums.transpose(0, 1)


@eye_answers.register_fake
def _(images: Tensor, kernels: Tensor, factors: Tensor, size: int, mirrored: bool) -> Tensor:  # noqa: ARG001
    sums = images.new_empty(len(images), 1 + mirrored, PER_FILTER * len(kernels), dtype=torch.float32)
    return sums.transpose(0, 1)
