"""A-D, attention distillation: lost attention is penalised, gained attention is not (Pelosin et al., CVPRW 2022).

Blocks are the encoder's: class-attention has one row only. In GPSA the scores are those of the content, as positions do
not depend on the image; what attention mixed has both.
Legend: a = sums of a block's attention over rows and over columns, of unit length for each image; a⁻ = before the task.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from gcab.data.tasks import Batch, Progress, Setting
from gcab.errors import check_options
from gcab.fast.encoders import require_transformer
from gcab.methods.card import Card, Compass
from gcab.methods.lwf import Lwf, LwfOptions
from gcab.methods.space import Between, space
from gcab.model.encoder import Observed


@dataclass(frozen=True)
class AdOptions(LwfOptions):
    """The authors' settings; the paper does not say which variant it ran."""

    old_heads: Literal["learn", "frozen"] = "frozen"
    attention: float = 1.0  # weight of lost attention, beside `weight` of the old answers
    variant: Literal["functional", "attentional"] = "functional"  # what attention mixed, or its scores Q K^T / sqrt(d)
    symmetric: bool = False  # gains cost, too: |a - a⁻| of squares, as PODNet

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self, weights=("attention",))


class Ad(Lwf):
    """L = CE(new head) + λ KD(old heads) + μ mean |ReLU(a⁻ - a)|₂ over blocks and images."""

    Options: ClassVar[type[Any]] = AdOptions
    summary = "attention distillation (A-D): lost attention costs, gained attention is free; stores no image"
    card: ClassVar[Card] = Card(
        source="Pelosin et al., CVPR workshops 2022",
        differs="of its variants, of which the paper does not name the one that it ran, the functional one",
        compass=Compass(task_agnostic="supervised"),
    )
    search_space = space(weight=Between(0.1, 10), attention=Between(0.1, 10))
    options: AdOptions

    def __init__(self, setting: Setting, options: AdOptions) -> None:
        require_transformer(setting.encoder)
        super().__init__(setting, options)

    @property
    def held(self) -> bool:
        return super().held or (self.known > 0 and self.options.attention > 0)

    def batch(self, batch: Batch) -> Batch:
        """Add z⁻ and a⁻, the teacher's logits and attention."""
        if self.teacher is None:
            return batch
        logits, attention = self.observed(self.teacher.module, batch.images)
        return replace(batch, targets={"answers": logits[:, : self.known], "attention": attention})

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        if not batch.targets:
            return super().loss(batch, progress)
        logits, attention = self.observed(self.network, batch.images)
        lost = lost_attention(batch.targets["attention"], attention, self.options.symmetric)
        return {
            "classification": self.labelled(logits, batch.labels),
            "distillation": self.options.weight * self.distance(logits[:, : self.known], batch.targets["answers"]),
            "attention": self.options.attention * lost,
        }

    def observed(self, network: Any, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and a of each block: (B, blocks, heads (rows + columns))."""
        what: Observed = "mixed" if self.options.variant == "functional" else "scores"
        tokens, seen = network.encoder.observe(images, what)
        pooled = torch.stack([summed(part, self.options.symmetric) for part in seen], dim=1)
        return network.head(network.decode(tokens)), pooled


def summed(attention: Tensor, squared: bool) -> Tensor:
    """Sums over rows and over columns of each head, concatenated and L2-normalised: (B, heads (rows + columns))."""
    values = attention.float().square() if squared else attention.float()
    return functional.normalize(torch.cat([values.sum(dim=-1), values.sum(dim=-2)], dim=-1).flatten(1), dim=1)


def lost_attention(before: Tensor, now: Tensor, symmetric: bool) -> Tensor:
    """The mean over images and blocks of |ReLU(a⁻ - a)|₂, or of |a⁻ - a|₂."""
    difference = before - now
    return torch.linalg.vector_norm(difference if symmetric else functional.relu(difference), dim=-1).mean()
