"""The eye on a GPU: one kernel convolves, normalises, rectifies and pools, without writing intermediate results.

It computes `Eye.answers`, bit for bit: products and sums are of integers, hence exact, and divisions and roots are
rounded the same everywhere.
"""

import torch
from torch import Tensor
from torch.nn import functional

from gcab.fast.fused_attention import HAS_TRITON
from gcab.model.eye import CELLS, FLAT, PER_FILTER, SHARES, SIDE, STEPS, THRESHOLD, Eye, pooling_window

PLACES, FILTERS, PIXELS = 64, 256, 256  # tile sizes of a program, the fastest of those tried
FEW = 64  # filters of a program for small batches, so that there are enough programs to fill the GPU


class FastEye(Eye):
    """The same eye, with a fused kernel on a GPU."""

    def __init__(self, features: int, mirrored: bool = False, side: int = SIDE, tones: int = 0) -> None:
        super().__init__(features, mirrored, side, tones)
        for size in SHARES:
            kernels = getattr(self, f"kernels{size}")
            looks = torch.cat([kernels, kernels.flip(3)] if mirrored else [kernels]).flatten(1)
            padded = 1 << (looks.shape[1] - 1).bit_length()
            looks = functional.pad(looks, (0, padded - looks.shape[1])).to(torch.int8)
            self.register_buffer(f"looks{size}", looks, persistent=False)
            self.register_buffer(f"factors{size}", STEPS * getattr(self, f"scales{size}"), persistent=False)

    def answers(self, images: Tensor, size: int) -> Tensor:
        return self.looked(images, size, exact=True) if on_kernel(images) else super().answers(images, size)

    def unrounded(self, images: Tensor) -> Tensor:
        return self.measured(images, self.rough_answers) if on_kernel(images) else self(images)

    def rough_answers(self, images: Tensor, size: int) -> Tensor:
        """`answers` without intermediate rounding: precise enough for predictions, and faster."""
        return self.looked(images, size, exact=False)

    def looked(self, images: Tensor, size: int, exact: bool) -> Tensor:
        kernels, factors = getattr(self, f"looks{size}"), getattr(self, f"factors{size}")
        sums = eye_answers(images.to(torch.uint8), kernels, factors, size, exact)
        window = pooling_window(images.shape[-1] - size + 1)
        return sums * (1 / (STEPS * window**2))


def on_kernel(images: Tensor) -> bool:
    return HAS_TRITON and images.is_cuda


@torch.library.custom_op("gcab::eye_answers", mutates_args=())
def eye_answers(images: Tensor, kernels: Tensor, factors: Tensor, size: int, exact: bool) -> Tensor:
    """Responses of filters (looks K, padded) to uint8 images (B, 3, side, side), summed per cell: (looks, B, 8 K).

    `exact`: rounded as the readable eye rounds them; else not at all, which is faster.
    """
    from gcab.fast.eye_kernels import answers_kernel

    batch, side, filters, padded = len(images), images.shape[-1], len(factors), kernels.shape[1]
    looks = len(kernels) // filters
    at_once = FILTERS if batch >= FEW else FEW
    sums = images.new_empty(batch, looks, PER_FILTER * filters, dtype=torch.float32)
    answers_kernel[(batch, -(-len(kernels) // at_once), CELLS**2)](
        images.contiguous(), kernels, factors, sums, side=side, size=size, places=side - size + 1, cells=CELLS,
        filters=filters, looks=looks, padded=padded, faint=THRESHOLD * STEPS, flat=FLAT, exact=exact,
        some_places=PLACES, some_filters=at_once, some_pixels=min(padded, PIXELS), num_warps=8 if exact else 4,
        enable_fp_fusion=not exact,
    )  # fmt: skip
    return sums.transpose(0, 1)


@eye_answers.register_fake
def _(images: Tensor, kernels: Tensor, factors: Tensor, size: int, exact: bool) -> Tensor:  # noqa: ARG001
    sums = images.new_empty(len(images), len(kernels) // len(factors), PER_FILTER * len(factors), dtype=torch.float32)
    return sums.transpose(0, 1)
