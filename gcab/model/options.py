"""Every place where the text and the authors' code build another network, as a named option."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class NetworkOptions:
    """Defaults are the authors' code (`official`) but where it is named; the comment gives the text's other choice."""

    gates: bool = True
    class_token: Literal["shared", "per_task"] = "per_task"  # text: shared, its gradient masked by 1 - m_i
    residual: Literal["attention", "block"] = "block"  # f = v + (O + θ); text: attention, f = v + O
    activation: Literal["gelu", "none"] = "gelu"  # the text writes none but calls it an MLP
    gated_sites: Literal["input", "everywhere"] = "everywhere"  # m_1 on b', O and v; text: input, on b' only
    normalise: bool = True  # LayerNorm before attention and MLP; not in the text's equations
    freeze_norms: bool = True  # block norms stop learning after task 1; text: not mentioned
    mask_classifier: bool = False  # text: the classifier reads f ⊙ m_1
    head_norm: bool = True  # a LayerNorm per head; not in the text
    head_init: Literal["truncated", "default"] = (
        "truncated"  # normal, as all other layers; authors: nn.Linear's default
    )
    binarise: Literal["never", "next", "end"] = "next"  # text: never, σ(s_max e) for every task
    gate_mean: float = 0.0  # embeddings start at N(mean, std): half of the units open
    gate_std: float = 1.0
    sharpest: float = 800.0  # s_max
    projector: Literal["mlp", "normed", "residual"] = "normed"  # text: mlp; residual: ours, starts as the identity
