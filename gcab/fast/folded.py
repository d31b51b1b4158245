"""All passes of the decoder as one computation: what `GatedNetwork.logits` defines, rewritten exactly.

Legend: T = passes, Q = queries of all passes and heads, θ = class token, b = encoder features, p = [θ, b],
A = softmax((Q ⊙ m_QK)(K ⊙ m_QK)^T / sqrt(d/h)), m_i = `gate_in`, m_2 = `gate_hidden`, c = `Constants`.

The class token does not depend on the image, so neither does its query, and (Q ⊙ m)(K ⊙ m)^T = p ⊙ m (W_k^T (q ⊙ m)):
one constant vector per task and head. As A V = (A p) W_v, the values need W_v on one mixture per head, not on N tokens.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from gcab.model.class_attention import ClassAttention
from gcab.model.encoder import DropPath
from gcab.model.heads import Head
from gcab.model.network import GatedNetwork, Masks


class Constants(NamedTuple):
    """The passes' image-independent constants."""

    tokens: Tensor  # θ (T, D)
    gate_in: Tensor  # m_i (T, D)
    gate_out: Tensor  # m_1 on O and v (T, D)
    gate_hidden: Tensor  # m_2 (T, hidden)
    gate_classifier: Tensor  # m_1 on f (T, D)
    queries: Tensor  # m_i ⊙ W_k^T (q ⊙ m_i) / sqrt(d/h) (T, heads, D)
    token_logits: Tensor  # of θ attending to itself (T, heads)
    token_values: Tensor  # V ⊙ m_i of θ (T, D)
    classifiers: Tensor  # c^s, padded to the largest task (T, classes, D)
    biases: Tensor  # (T, classes)


class HeadWeights(NamedTuple):
    """c^s as tensors."""

    weight: Tensor  # (classes, D)
    bias: Tensor  # (classes,)
    norm: tuple[Tensor, Tensor] | None  # γ and β of its LayerNorm


class DecoderPass(NamedTuple):
    """One task's own weights: token, gates and head."""

    token: Tensor  # θ (D,)
    gates: Masks
    head: "HeadWeights"


def passes_of(network: GatedNetwork, masks: Sequence[Masks], first: int = 0) -> list[DecoderPass]:
    """The passes of tasks first, first + 1, ... under these gates."""
    last = len(network.tokens) - 1
    return [
        DecoderPass(network.tokens[min(task, last)], gates, weights_of(cast(Head, network.heads[task])))
        for task, gates in enumerate(masks, start=first)
    ]


def weights_of(head: Head) -> HeadWeights:
    norm = (head.norm.weight, head.norm.bias) if isinstance(head.norm, nn.LayerNorm) else None
    return HeadWeights(head.linear.weight, head.linear.bias, norm)


def fold(block: ClassAttention, passes: Sequence[DecoderPass]) -> Constants:
    """The constants of these passes; differentiable, about D² work for each."""
    options, width, hidden = block.options, block.query.in_features, block.expand.out_features
    tokens = torch.stack([one.token for one in passes])
    m_i = stack_gates([one.gates[0] for one in passes], tokens, width)
    m_2 = stack_gates([one.gates[1] for one in passes], tokens, hidden)
    p = block.norm_attention(tokens) * m_i
    q = block.query(p) * m_i * (block.heads / width) ** 0.5
    queries = torch.einsum("the,hed->thd", (q * m_i).unflatten(1, (block.heads, -1)), by_head(block.key, block.heads))
    classifiers, biases = fold_heads([one.head for one in passes])
    return Constants(
        tokens=tokens,
        gate_in=m_i,
        gate_out=m_i if options.gated_sites == "everywhere" else torch.ones_like(tokens),
        gate_hidden=m_2,
        gate_classifier=m_i if options.mask_classifier else torch.ones_like(tokens),
        queries=queries * m_i[:, None],
        token_logits=(queries * p[:, None]).sum(dim=-1),
        token_values=block.value(p) * m_i,
        classifiers=classifiers,
        biases=biases,
    )


def stack_gates(gates: Sequence[Tensor | None], tokens: Tensor, units: int) -> Tensor:
    """One row per pass; where there are no gates, all units are open."""
    given = [gate for gate in gates if gate is not None]
    return torch.stack(given) if given else tokens.new_ones(len(gates), units)


def by_head(layer: nn.Linear, heads: int) -> Tensor:
    return layer.weight.unflatten(0, (heads, -1))  # (heads, D / heads, D)


def fold_heads(heads: Sequence[HeadWeights]) -> tuple[Tensor, Tensor]:
    """W (γ ⊙ x + β) + c = (W ⊙ γ) x + (W β + c): of a head's LayerNorm only the normalisation is left to do."""
    weights = pad_sequence([head.weight for head in heads], batch_first=True)  # (T, classes, D)
    biases = pad_sequence([head.bias for head in heads], batch_first=True)
    norms = [head.norm for head in heads if head.norm is not None]
    if not norms:
        return weights, biases
    γ, β = torch.stack([scale for scale, _ in norms]), torch.stack([shift for _, shift in norms])
    return weights * γ[:, None], biases + (weights @ β[:, :, None]).squeeze(-1)


def decode(block: ClassAttention, c: Constants, spaces: Sequence[Tensor], classes: Sequence[int]) -> Tensor:
    """The logits of all passes, concatenated; `spaces` are the features (B, N, D) in each task's space."""
    out_attention, out_mlp = kept_outputs(block, c, spaces)
    attention = block.output(attend(block, c, spaces)) * out_attention  # O (B, T, D)
    b = attention + c.tokens  # b'
    u = block.expand(block.norm_mlp(b) * c.gate_in)  # (B, T, hidden)
    activated = functional.gelu(u) if block.options.activation == "gelu" else u
    v = block.contract(activated * c.gate_hidden) * out_mlp
    f = (v + (b if block.options.residual == "block" else attention)) * c.gate_classifier
    if block.options.head_norm:
        f = functional.layer_norm(f, f.shape[-1:])
    padded = torch.einsum("btd,tcd->btc", f, c.classifiers) + c.biases
    return torch.cat([padded[:, task, :count] for task, count in enumerate(classes)], dim=1)  # (B, all classes)


def kept_outputs(block: ClassAttention, c: Constants, spaces: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """m_1 on O and on v (T, D), and what drop-path leaves of it (B, T, D), drawn as one pass after the other would."""
    if not (isinstance(block.drop_path, DropPath) and block.drop_path.training):
        return c.gate_out, c.gate_out
    kept = block.drop_path.kept(len(spaces[0]), branches=2 * len(spaces))  # of O, of v, of the next pass's O, ...
    return c.gate_out * kept[:, ::2], c.gate_out * kept[:, 1::2]


def attend(block: ClassAttention, c: Constants, spaces: Sequence[Tensor]) -> Tensor:
    """A (V ⊙ m_V) of every pass, heads concatenated: (B, T, D)."""
    assert len(spaces) == len(c.tokens), "one space for each folded pass"
    mixtures, shares = [], []  # of every pass and head: A b, and how much of A falls on the class token
    for features, tasks in neighbours(spaces):
        b = block.norm_attention(features.to(c.tokens.dtype))
        batch = b.shape[0]  # len() would fix it at export
        to_token = c.token_logits[tasks].reshape(1, -1, 1).expand(batch, -1, -1)
        to_features = c.queries[tasks].flatten(0, 1) @ b.mT  # (B, Q, N)
        attention = torch.cat([to_features, to_token], dim=-1).softmax(dim=-1)  # A
        mixtures.append(attention[..., :-1] @ b)  # (B, Q, D)
        shares.append(attention[..., -1:])
    mixture = torch.cat(mixtures, dim=1).unflatten(1, (-1, block.heads)) * c.gate_in[:, None]  # (B, T, heads, D)
    share = torch.cat(shares, dim=1).unflatten(1, (-1, block.heads))  # (B, T, heads, 1)
    of_features = torch.einsum("bthd,hed->bthe", mixture, by_head(block.value, block.heads))
    of_token = share * c.token_values.unflatten(1, (block.heads, -1))
    return of_features.flatten(2) * c.gate_in + of_token.flatten(2)


def neighbours(spaces: Sequence[Tensor]) -> Iterator[tuple[Tensor, slice]]:
    """Without compensation all tasks see the same tensor: one product with all queries then serves them all."""
    start = 0
    for stop in range(1, len(spaces) + 1):
        if stop == len(spaces) or spaces[stop] is not spaces[start]:
            yield spaces[start], slice(start, stop)
            start = stop


def pass_logits(
    block: ClassAttention, passes: Sequence[DecoderPass], spaces: Sequence[Tensor], classes: Sequence[int]
) -> Tensor:
    """Logits of these passes from the live weights, with the gradients of the readable ones."""
    return decode(block, fold(block, passes), spaces, classes)


def fast_logits(network: GatedNetwork, spaces: Sequence[Tensor], masks: Sequence[Masks], first: int = 0) -> Tensor:
    """Logits of tasks first, first + 1, ... under these gates."""
    classes = network.classes[first : first + len(masks)]
    return pass_logits(network.block, passes_of(network, masks, first), spaces, classes)


class FoldedDecoder(nn.Module):
    """A copy of a network's decoder for inference: it neither learns nor follows the network afterwards."""

    compiled = ("forward",)

    def __init__(self, network: GatedNetwork) -> None:
        super().__init__()
        self.classes = tuple(network.classes)
        self.block = copy.deepcopy(network.block).requires_grad_(False).eval()
        del self.block.query, self.block.key  # they are folded into the constants
        with torch.no_grad():
            passes = passes_of(network, [network.masks(task) for task in range(network.tasks)])
            constants = fold(network.block, passes)
        for name, tensor in constants._asdict().items():
            self.register_buffer(name, tensor.detach().clone())

    def forward(self, spaces: list[Tensor]) -> Tensor:
        constants = Constants(*[getattr(self, name) for name in Constants._fields])
        return decode(self.block, constants, spaces, self.classes)
