"""All passes of the decoder as one computation: what `GatedNetwork.logits` defines, rewritten exactly.

Legend: T = passes, Q = T x heads queries, θ = class token, p = [θ, b], A = softmax((Q ⊙ m_QK)(K ⊙ m_QK)^T / sqrt(d/h)).

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
from gcab.model.heads import Head
from gcab.model.network import GatedNetwork, Masks


class Constants(NamedTuple):
    """All that the passes need beside the block's own layers and that no image changes."""

    tokens: Tensor  # θ (T, D)
    gate_in: Tensor  # m_i (T, D)
    gate_out: Tensor  # m_1 on O and v (T, D)
    gate_hidden: Tensor  # m_2 (T, hidden)
    gate_classifier: Tensor  # m_1 on f (T, D)
    queries: Tensor  # m_i ⊙ W_k^T (q ⊙ m_i) / sqrt(d/h) (T, heads, D)
    token_logits: Tensor  # of θ attending to itself (T, heads)
    token_values: Tensor  # V ⊙ m_i of θ (T, D)
    classifiers: Tensor  # c^s with its LayerNorm's scale, padded to the largest task (T, classes, D)
    biases: Tensor  # (T, classes)
    columns: Tensor  # where the real classes are among the padded ones (all classes,)


def fold(network: GatedNetwork, masks: Sequence[Masks], first: int = 0) -> Constants:
    """The constants of tasks first, first + 1, ... under these gates; differentiable, and D² work for each task."""
    block, options = network.block, network.options
    passes = range(first, first + len(masks))
    tokens = torch.stack([network.tokens[min(task, len(network.tokens) - 1)] for task in passes])
    hidden = tokens.new_ones(len(masks), block.expand.out_features)
    m_i = stack([m for m, _ in masks], torch.ones_like(tokens))
    m_2 = stack([m for _, m in masks], hidden)
    p = block.norm_attention(tokens) * m_i
    q = block.query(p) * m_i * (block.heads / network.width) ** 0.5
    queries = torch.einsum("the,hed->thd", (q * m_i).unflatten(1, (block.heads, -1)), by_head(block.key, block.heads))
    queries = queries * m_i[:, None]
    heads = [cast(Head, network.heads[task]) for task in passes]
    largest = max(head.linear.out_features for head in heads)
    return Constants(
        tokens=tokens,
        gate_in=m_i,
        gate_out=m_i if options.gated_sites == "everywhere" else torch.ones_like(tokens),
        gate_hidden=m_2,
        gate_classifier=m_i if options.mask_classifier else torch.ones_like(tokens),
        queries=queries,
        token_logits=(queries * block.norm_attention(tokens)[:, None]).sum(dim=-1),
        token_values=block.value(p) * m_i,
        classifiers=pad_sequence([scaled_weight(head) for head in heads], batch_first=True),
        biases=pad_sequence([shifted_bias(head) for head in heads], batch_first=True),
        columns=torch.cat(
            [
                torch.arange(head.linear.out_features, device=tokens.device) + largest * index
                for index, head in enumerate(heads)
            ]
        ),
    )


def stack(gates: Sequence[Tensor | None], unless: Tensor) -> Tensor:
    given = [gate for gate in gates if gate is not None]
    return torch.stack(given) if given else unless


def by_head(layer: nn.Linear, heads: int) -> Tensor:
    return layer.weight.unflatten(0, (heads, -1))  # (heads, D / heads, D)


def scaled_weight(head: Head) -> Tensor:
    """W (γ ⊙ x + β) + c = (W ⊙ γ) x + (W β + c): the head's LayerNorm keeps only what depends on the image."""
    return head.linear.weight * head.norm.weight if isinstance(head.norm, nn.LayerNorm) else head.linear.weight


def shifted_bias(head: Head) -> Tensor:
    bias = head.linear.bias
    return bias + head.linear.weight @ head.norm.bias if isinstance(head.norm, nn.LayerNorm) else bias


def decode(block: ClassAttention, constants: Constants, spaces: Sequence[Tensor]) -> Tensor:
    """The logits of all passes, concatenated; `spaces` are the features (B, N, D) as each task is to see them."""
    c, options = constants, block.options
    O = block.output(attend(block, c, spaces)) * c.gate_out  # (B, T, D)  # noqa: E741
    b = O + c.tokens  # b'
    u = block.expand(block.norm_mlp(b) * c.gate_in)  # (B, T, hidden)
    activated = functional.gelu(u) if options.activation == "gelu" else u
    v = block.contract(activated * c.gate_hidden) * c.gate_out
    f = (v + (b if options.residual == "block" else O)) * c.gate_classifier
    if options.head_norm:
        f = functional.layer_norm(f, f.shape[-1:])
    logits = torch.einsum("btd,tcd->btc", f, c.classifiers.to(f.dtype)) + c.biases  # (B, T, classes)
    return logits.flatten(1)[:, c.columns]  # (B, all classes)


def attend(block: ClassAttention, c: Constants, spaces: Sequence[Tensor]) -> Tensor:
    """A (V ⊙ m_V) of every pass, heads concatenated: (B, T, D)."""
    mixtures, shares = [], []  # of every pass and head: A b, and how much of A falls on the class token
    for features, tasks in neighbours(spaces):
        b = block.norm_attention(features.to(c.tokens.dtype))
        to_token = c.token_logits[tasks].reshape(1, -1, 1).expand(len(b), -1, -1)
        to_features = c.queries[tasks].flatten(0, 1) @ b.mT  # (B, Q, N)
        A = torch.cat([to_features, to_token.to(to_features.dtype)], dim=-1).softmax(dim=-1)
        mixtures.append(A[..., :-1] @ b)  # (B, Q, D)
        shares.append(A[..., -1:])
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


def fast_logits(network: GatedNetwork, spaces: Sequence[Tensor], masks: Sequence[Masks], first: int = 0) -> Tensor:
    """Logits of tasks first, first + 1, ... from the live weights, with the gradients of the readable passes."""
    return decode(network.block, fold(network, masks, first), spaces)


class FoldedDecoder(nn.Module):
    """A snapshot of a network's decoder for inference: it neither learns nor follows the network afterwards."""

    def __init__(self, network: GatedNetwork) -> None:
        super().__init__()
        self.block = copy.deepcopy(network.block).requires_grad_(False).eval()
        del self.block.query, self.block.key  # all that is left of them is in the constants
        with torch.no_grad():
            constants = fold(network, [network.masks(task) for task in range(network.tasks)])
        for name, tensor in constants._asdict().items():
            self.register_buffer(name, tensor.detach().clone())

    def forward(self, spaces: list[Tensor]) -> Tensor:
        constants = Constants(*[getattr(self, name) for name in Constants._fields])
        return decode(self.block, constants, spaces)
