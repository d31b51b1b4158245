"""The attention kernel computes the readable function, forward and backward, for any batch."""

import pytest
import torch

from gcab.fast.fused_attention import HAS_TRITON, FusedAttention, fits, gated_attention
from gcab.model.encoder import GatedPositionalSelfAttention

needs_gpu = pytest.mark.skipif(not (torch.cuda.is_available() and HAS_TRITON), reason="needs a GPU and Triton")


def test_the_kernel_is_for_gpus_only() -> None:
    assert not fits(torch.zeros(2, 64, 3 * 384, dtype=torch.bfloat16), heads=12)


@needs_gpu
@pytest.mark.parametrize(("batch", "heads", "side", "width"), [(128, 12, 8, 32), (5, 2, 4, 16), (130, 3, 8, 64)])
def test_the_kernel_is_the_readable_mixture(batch: int, heads: int, side: int, width: int) -> None:
    torch.manual_seed(batch)
    layer = GatedPositionalSelfAttention(heads * width, heads, side).cuda()
    torch.nn.init.normal_(layer.position.weight)
    torch.nn.init.normal_(layer.gate)
    qkv = torch.randn(batch, side**2, 3 * heads * width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    outside = torch.randn(batch, side**2, heads * width, device="cuda", dtype=torch.bfloat16)
    g = torch.sigmoid(layer.gate)
    m, s = (g.view(-1, 1, 1) * layer.neighbours()).detach().requires_grad_(), (1 - g).detach().requires_grad_()
    assert fits(qkv, heads)
    found = gated_attention(qkv, m, s)
    gradients = torch.autograd.grad(found, (qkv, m, s), outside)

    exact = qkv.detach().double().requires_grad_()
    q, k, v = (layer.split(part) for part in exact.chunk(3, dim=-1))
    exact_m, exact_s = m.detach().double().requires_grad_(), s.detach().double().requires_grad_()
    attention = (q @ k.mT / width**0.5).softmax(dim=-1)
    expected = ((exact_s.view(-1, 1, 1) * attention + exact_m) @ v).transpose(1, 2).flatten(2)
    expected_gradients = torch.autograd.grad(expected, (exact, exact_m, exact_s), outside.double())
    for one, other in zip((found, *gradients), (expected, *expected_gradients), strict=True):
        assert (one.double() - other).norm() / other.norm() < 1e-2


@needs_gpu
def test_the_layer_takes_the_kernel_and_gives_what_it_gives_without(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    layer = FusedAttention(384, 12, 8).cuda()
    x = torch.randn(4, 64, 384, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        found = layer(x)
        monkeypatch.setattr("gcab.fast.fused_attention.fits", lambda *_: False)
        expected = layer(x)
    assert (found - expected).norm() / expected.norm() < 2e-2
