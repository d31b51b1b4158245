"""Attention maps: the class token's attention A over the image tokens (paper, section "Gated class-attention").

Legend: θ = class token, b = encoder features, p = [θ, b], m_i = `gate_in`,
A = softmax((Q ⊙ m_QK)(K ⊙ m_QK)^T / sqrt(d/h)).
"""

import torch
from torch import Tensor

from gcab.model.class_attention import ClassAttention
from gcab.model.network import GatedNetwork, PlainNetwork


def class_attention_map(block: ClassAttention, token: Tensor, features: Tensor, gate_in: Tensor | None) -> Tensor:
    """A averaged over the heads, without the class token's weight on itself, so rows sum to less than 1: (B, N)."""
    m_i = token.new_ones(()) if gate_in is None else gate_in  # (D,)
    θ = token.expand(len(features), 1, -1)  # (B, 1, D)
    p = block.norm_attention(torch.cat([θ, features.to(θ.dtype)], dim=1)) * m_i  # (B, 1 + N, D)
    q = block.split(block.query(p[:, :1]) * m_i)  # (B, heads, 1, D / heads)
    k = block.split(block.key(p) * m_i)  # (B, heads, 1 + N, D / heads)
    attention = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)  # A (B, heads, 1, 1 + N)
    return attention.mean(dim=1)[:, 0, 1:]


def gated_attention_maps(network: GatedNetwork, images: Tensor, compensate: bool) -> Tensor:
    """One map for each task's pass, under its own gates and in its own feature space: (B, T, N)."""
    spaces = network.spaces(network.encoder(images), compensate)
    tokens = [network.tokens[min(task, len(network.tokens) - 1)] for task in range(network.tasks)]
    maps = [
        class_attention_map(network.block, token, features, network.masks(task)[0])
        for task, (token, features) in enumerate(zip(tokens, spaces, strict=True))
    ]
    return torch.stack(maps, dim=1)


def plain_attention_map(network: PlainNetwork, images: Tensor) -> Tensor:
    """The one map of a network without a pass per task: (B, 1, N)."""
    return class_attention_map(network.block, network.token, network.encoder(images), None)[:, None]
