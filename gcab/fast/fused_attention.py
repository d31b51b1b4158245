"""Gated positional self-attention as one GPU kernel forward and one backward.

What it computes is `GatedPositionalSelfAttention.mix`: O = (s A + M) V with A = softmax(Q K^T / sqrt(d)), where
s = 1 - g and M = g softmax(positions) are the same for all images. It reads Q, K and V where the projection left them
and writes O where the next layer reads it: nothing is transposed or copied. One program handles one head of a few
images.

Legend: B = images, N = tokens, H = heads, d = width of a head.
"""

import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gcab.model.encoder import GatedPositionalSelfAttention

IMAGES = 4  # per program: they share a load of M and one sum of its gradients
HAS_TRITON = importlib.util.find_spec("triton") is not None
SIZES = (16, 32, 64, 128)  # of N and d: powers of two that fit in registers


def fits(qkv: Tensor, heads: int) -> bool:
    """Whether the kernel can take this; elsewhere the readable form runs."""
    tokens, width = qkv.shape[-2], qkv.shape[-1] // (3 * heads)
    return HAS_TRITON and qkv.is_cuda and qkv.dtype == torch.bfloat16 and tokens in SIZES and width in SIZES


@torch.library.custom_op("gcab::gated_attention", mutates_args=())
def gated_attention(qkv: Tensor, m: Tensor, s: Tensor) -> Tensor:
    """O (B, N, D) from Q, K and V (B, N, 3 D) side by side, M (H, N, N) and s (H,)."""
    from gcab.fast.attention_kernels import forward_kernel

    batch, tokens, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    heads = len(s)
    output = qkv.new_empty(batch, tokens, width)
    forward_kernel[(-(-batch // IMAGES), heads)](
        qkv.contiguous(), m.contiguous(), s.contiguous(), output, (heads / width) ** 0.5, batch, images=IMAGES,
        heads=heads, tokens=tokens, width=width // heads, num_warps=4,
    )  # fmt: skip
    return output


@gated_attention.register_fake
def _(qkv: Tensor, m: Tensor, s: Tensor) -> Tensor:  # noqa: ARG001
    return qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)


@torch.library.custom_op("gcab::gated_attention_backward", mutates_args=())
def gated_attention_backward(gradient: Tensor, qkv: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of qkv; and those of M and s for every few images: (programs, H, N, N) and (programs, H)."""
    from gcab.fast.attention_kernels import backward_kernel

    batch, tokens, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    heads, programs = len(s), -(-batch // IMAGES)
    of_qkv = torch.empty_like(qkv, memory_format=torch.contiguous_format)
    of_m = m.new_empty(programs, heads, tokens, tokens, dtype=torch.float32)
    of_s = s.new_empty(programs, heads, dtype=torch.float32)
    backward_kernel[(programs, heads)](
        gradient.contiguous(), qkv.contiguous(), m.contiguous(), s.contiguous(), of_qkv, of_m, of_s,
        (heads / width) ** 0.5, batch, images=IMAGES, heads=heads, tokens=tokens, width=width // heads, num_warps=4,
    )  # fmt: skip
    return of_qkv, of_m, of_s


@gated_attention_backward.register_fake
def _(gradient: Tensor, qkv: Tensor, m: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    programs = -(-qkv.shape[0] // IMAGES)
    of_m = m.new_empty(programs, *m.shape, dtype=torch.float32)
    return qkv.new_empty(qkv.shape), of_m, s.new_empty(programs, len(s), dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _, m, s = ctx.saved_tensors
    of_qkv, of_m, of_s = gated_attention_backward(gradient, *ctx.saved_tensors)
    return of_qkv, of_m.sum(dim=0).to(m.dtype), of_s.sum(dim=0).to(s.dtype)


gated_attention.register_autograd(_backward, setup_context=_setup_context)


class FusedAttention(GatedPositionalSelfAttention):
    """The same attention; on a GPU one product makes Q, K and V, and where it fits one kernel does all of `mix`."""

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda:
            return super().forward(x)
        qkv = functional.linear(x, torch.cat([self.query_key.weight, self.value.weight]))  # (B, N, 3 D)
        if not fits(qkv, self.heads):
            return self.join(self.mix(*map(self.split, qkv.chunk(3, dim=-1))))
        g = torch.sigmoid(self.gate.float())
        return self.output(gated_attention(qkv, g.view(-1, 1, 1) * self.neighbours().float(), 1 - g))
