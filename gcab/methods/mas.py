"""Memory aware synapses: a quadratic penalty weighted by the sensitivity of the logits (Aljundi et al. 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gcab.methods.card import Card, Compass
from gcab.methods.importance import Importance, ImportanceOptions
from gcab.methods.per_image import gradients_per_image
from gcab.methods.space import Near, space


@dataclass(frozen=True)
class MasOptions(ImportanceOptions):
    """The authors' own sum and weight; FACIL averages as for EWC, and takes the length of z for its square."""

    merge: Literal["average", "sum"] = "sum"


class Mas(Importance):
    """Ω = E_x |∂ |z(x)|² / ∂θ|, image by image so that signs do not cancel."""

    Options: ClassVar[type[Any]] = MasOptions
    summary = "memory aware synapses: weights that the answers are sensitive to move less; stores no image"
    card: ClassVar[Card] = Card(
        source="Aljundi et al., ECCV 2018",
        stores="two numbers per weight: its importance, and its value after the last task",
        differs="importances do not include heads (FACIL)",
        compass=Compass(task_agnostic="supervised"),
    )
    search_space = space(weight=Near(100))
    options: MasOptions

    def of_images(self, images: Tensor) -> Tensor:
        def length(logits: Tensor, _: Tensor) -> Tensor:
            return logits.square().sum()

        unused = torch.zeros(len(images), device=images.device)
        return gradients_per_image(self.network, self.shared(), length, images, unused).abs()
