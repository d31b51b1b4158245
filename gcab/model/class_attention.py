"""The gated class-attention block, GCAB (paper, section "Gated class-attention").

Legend: θ = class token, b = encoder features, p = [θ, b], m_i = `gate_in` (shared by QK, V, 1 and o, as in the paper's
experiments), m_2 = `gate_hidden`, W_q ... W_2 = `query`, `key`, `value`, `output`, `expand`, `contract`.
"""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.model.encoder import DropPath
from gcab.model.options import NetworkOptions


class ClassAttention(nn.Module):
    """One pass of one task, from class token and features to the decoder's feature f; ungated without gates."""

    purposes: ClassVar[dict[str, str]] = {"": "decoder: sums features up, shared by all tasks"}

    compiled = ("forward",)

    def __init__(
        self, width: int, heads: int, mlp_ratio: float, options: NetworkOptions, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.heads, self.options = heads, options
        self.norm_attention = nn.LayerNorm(width) if options.normalise else nn.Identity()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width) if options.normalise else nn.Identity()
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()  # Identity draws no random numbers

    def forward(
        self,
        token: Tensor,
        features: Tensor,
        gate_in: Tensor | None = None,
        gate_hidden: Tensor | None = None,
    ) -> Tensor:
        m_i = token.new_ones(()) if gate_in is None else gate_in  # (D,)
        m_2 = token.new_ones(()) if gate_hidden is None else gate_hidden  # (hidden,)
        everywhere = m_i if self.options.gated_sites == "everywhere" else token.new_ones(())
        θ = token.expand(features.shape[0], 1, -1)  # (B, 1, D)
        attention = self.drop_path(self.attend(θ, features, m_i) * everywhere)  # O
        b = attention + θ  # b'
        u = self.expand(self.norm_mlp(b) * m_i)  # (B, 1, hidden)
        activated = functional.gelu(u) if self.options.activation == "gelu" else u
        v = self.drop_path(self.contract(activated * m_2) * everywhere)
        f = v + (b if self.options.residual == "block" else attention)
        return f.squeeze(1)  # (B, D)

    def attend(self, θ: Tensor, features: Tensor, m_i: Tensor) -> Tensor:
        """O = W_o A (V ⊙ m_V) with A = softmax((Q ⊙ m_QK)(K ⊙ m_QK)^T / sqrt(d/h))."""
        p = self.norm_attention(torch.cat([θ, features.to(θ.dtype)], dim=1)) * m_i  # (B, 1 + N, D)
        q = self.split(self.query(p[:, :1]) * m_i)  # (B, heads, 1, D / heads)
        k = self.split(self.key(p) * m_i)  # (B, heads, 1 + N, D / heads)
        v = self.split(self.value(p) * m_i)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def norms(self) -> Iterator[nn.Module]:
        yield self.norm_attention
        yield self.norm_mlp

    def updatable(self, used_in: Tensor, used_hidden: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Every gated weight with its M^{<t}: 0 where an earlier task uses both ends, so it must not move.

        M_{kl} = 1 - min(m^{<t}_{input,k}, m^{<t}_{output,l}); a bias has only an output end.
        """
        square = 1 - torch.minimum(used_in[None, :], used_in[:, None])  # (out, in), as torch stores weights
        widening = 1 - torch.minimum(used_in[None, :], used_hidden[:, None])
        return [
            (self.query.weight, square),
            (self.key.weight, square),
            (self.value.weight, square),
            (self.output.weight, square),
            (self.output.bias, 1 - used_in),
            (self.expand.weight, widening),
            (self.expand.bias, 1 - used_hidden),
            (self.contract.weight, widening.T),
            (self.contract.bias, 1 - used_in),
        ]
