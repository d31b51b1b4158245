"""The two Triton kernels of `fused_attention`; imported only where Triton is, on a GPU."""

import triton
import triton.language as tl


@triton.jit
def attention(q, k, scale):
    """A (N, N) of one head of one image."""
    logits = tl.dot(q, tl.trans(k)) * scale
    exponentials = tl.exp(logits - tl.max(logits, axis=1)[:, None])
    return exponentials / tl.sum(exponentials, axis=1)[:, None]


@triton.jit
def forward_kernel(
    qkv, m, s, output, scale, batch,
    images: tl.constexpr, heads: tl.constexpr, tokens: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    program, head = tl.program_id(0), tl.program_id(1)
    token, column = tl.arange(0, tokens), tl.arange(0, width)
    positional = tl.load(m + head * tokens * tokens + token[:, None] * tokens + token[None, :])
    share = tl.load(s + head)
    for image in range(program * images, tl.minimum(program * images + images, batch)):
        row = (image * tokens + token[:, None]) * heads  # of q, k and v in `qkv` each third row, and of `output`
        here = qkv + (3 * row + head) * width + column[None, :]
        q, k, v = tl.load(here), tl.load(here + heads * width), tl.load(here + 2 * heads * width)  # (N, d)
        mixture = share * attention(q, k, scale) + positional
        there = output + (row + head) * width + column[None, :]
        tl.store(there, tl.dot(mixture.to(v.dtype), v).to(v.dtype))


@triton.jit
def backward_kernel(
    gradient, qkv, m, s, of_qkv, of_m, of_s, scale, batch,
    images: tl.constexpr, heads: tl.constexpr, tokens: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """With W = s A + M: dW = dO V^T, dV = W^T dO, dA = s dW, dM = Σ dW, ds = Σ dW ⊙ A; then through the softmax."""
    program, head = tl.program_id(0), tl.program_id(1)
    token, column = tl.arange(0, tokens), tl.arange(0, width)
    square = head * tokens * tokens + token[:, None] * tokens + token[None, :]
    positional, share = tl.load(m + square), tl.load(s + head)
    sum_m = tl.zeros((tokens, tokens), tl.float32)
    sum_s = tl.zeros((tokens,), tl.float32)
    for image in range(program * images, tl.minimum(program * images + images, batch)):
        row = (image * tokens + token[:, None]) * heads
        here = (3 * row + head) * width + column[None, :]
        q, k, v = tl.load(qkv + here), tl.load(qkv + here + heads * width), tl.load(qkv + here + 2 * heads * width)
        of_output = tl.load(gradient + (row + head) * width + column[None, :])
        a = attention(q, k, scale)
        of_w = tl.dot(of_output, tl.trans(v))
        of_v = tl.dot(tl.trans((share * a + positional).to(v.dtype)), of_output)
        product = of_w * a
        along = tl.sum(product, axis=1)  # (N,)
        sum_m += of_w
        sum_s += along
        of_logits = (share * (product - a * along[:, None]) * scale).to(v.dtype)
        tl.store(of_qkv + here, tl.dot(of_logits, k).to(v.dtype))
        tl.store(of_qkv + here + heads * width, tl.dot(tl.trans(of_logits), q).to(v.dtype))
        tl.store(of_qkv + here + 2 * heads * width, of_v.to(v.dtype))
    tl.store(of_m + program * heads * tokens * tokens + square, sum_m)
    tl.store(of_s + program * heads + head, tl.sum(sum_s, axis=0))
