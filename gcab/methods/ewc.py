"""Elastic weight consolidation: a quadratic penalty weighted by the Fisher information (Kirkpatrick et al. 2017)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from gcab.methods.card import Card, Compass
from gcab.methods.importance import Importance, ImportanceOptions
from gcab.methods.per_image import gradients_per_image
from gcab.methods.space import Near, space


@dataclass(frozen=True)
class EwcOptions(ImportanceOptions):
    """FACIL's Fisher is of a batch's mean gradient, Mammoth's of a sum: a weight belongs to its implementation."""

    weight: float = 50_000.0  # chosen among decades on held-out digits; FACIL: 5000, Mammoth: 10 to 25
    expectation: Literal["sampled", "exact"] = "sampled"  # over y ~ p(y | x): one draw, or all classes in turn


class Ewc(Importance):
    """Ω = E_x E_{y ~ p(y|x)} (∂ log p(y|x) / ∂θ)², the diagonal of the Fisher information, image by image."""

    Options: ClassVar[type[Any]] = EwcOptions
    summary = (
        "elastic weight consolidation: weights that old tasks' Fisher information names move less; stores no image"
    )
    card: ClassVar[Card] = Card(
        source="Kirkpatrick et al., PNAS 2017",
        stores="two numbers per weight: its importance, and its value after the last task",
        differs="importances of tasks are averaged into one (FACIL); its weight is for importances image by image",
        compass=Compass(task_agnostic="supervised"),
    )
    search_space = space(weight=Near(100))
    options: EwcOptions

    def of_images(self, images: Tensor) -> Tensor:
        first = self.known if self.options.heads == "new" else 0
        chances = self.network(images)[:, first:].softmax(dim=1)
        if self.options.expectation == "exact":
            labels = range(chances.shape[1])
            return torch.stack([chances[:, y, None] * self.squares(images, first, y) for y in labels]).sum(dim=0)
        draws = torch.rand(len(images), 1).to(chances.device)
        return self.squares(images, first, (chances.cumsum(dim=1) < draws).sum(dim=1).clamp_max(chances.shape[1] - 1))

    def squares(self, images: Tensor, first: int, labels: Tensor | int) -> Tensor:
        """(∂ log p(y|x) / ∂θ)², per image; labels count from class `first`."""

        def likelihood(logits: Tensor, label: Tensor) -> Tensor:
            return -functional.cross_entropy(logits[first:], label)

        targets = labels * torch.ones(len(images), dtype=torch.long, device=images.device)
        return gradients_per_image(self.network, self.shared(), likelihood, images, targets).square()
