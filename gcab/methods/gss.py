"""Gradient-based sample selection: images enter whose gradients differ from those stored (Aljundi et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor
from torch.nn import functional

from gcab.data.tasks import Batch, Progress, Setting, Task
from gcab.errors import GcabError
from gcab.methods.card import Card, Compass
from gcab.methods.method import losses
from gcab.methods.modes import evaluating
from gcab.methods.per_image import gradients_per_image
from gcab.methods.rehearsal import Replayed, ReplayedOptions
from gcab.methods.space import OneOf, space
from gcab.model.heads import Head
from gcab.parallel.ranks import gathered

SMALLEST = 1e-6  # lower bound of scores: an image opposite to all others can still be replaced


@dataclass(frozen=True)
class GssOptions(ReplayedOptions):
    """The authors'; Mammoth compares with 32 images."""

    compared: int = 10  # stored images that a batch is compared with
    gradients: Literal["head", "all"] = "head"  # of which weights; all: as published, for small networks

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compared < 1:
            raise GcabError(f"options.compared is {self.compared}: give 1 image or more.")


class Gss(Replayed):
    """L = CE(B ∪ drawn); while the memory is full, a batch enters only if max_j cos(g_batch, g_j) < 0."""

    Options: ClassVar[type[Any]] = GssOptions
    summary = "GSS: stores images whose gradients differ from those stored (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Aljundi et al., NeurIPS 2019, greedy",
        stores="images, a score of each",
        differs="compares gradients of the heads (`options.gradients all`: of all weights); one step per batch, not 10",
        compass=Compass(episodic_memory="supervised"),
    )
    search_space = space(compared=OneOf(5, 10, 20))
    purposes: ClassVar[dict[str, str]] = {"entered": "images of each task that entered the memory"}
    ahead = False
    columns: ClassVar[dict[str, Tensor]] = {"score": torch.zeros(())}  # 1 + the largest cosine when the image entered
    entered: Tensor
    options: GssOptions

    def __init__(self, setting: Setting, options: GssOptions) -> None:
        super().__init__(setting, options)
        self.register_buffer("entered", torch.zeros(0, dtype=torch.long))

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.entered = torch.cat([self.entered, self.entered.new_zeros(1)])

    @classmethod
    def looked_at(cls, options: Any, fresh: int, classes: Sequence[int]) -> int:
        """Fresh images go through it once more, to be compared with some stored ones."""
        return super().looked_at(options, fresh, classes) + fresh + int(options.compared)

    @torch.no_grad()
    def after_step(self, progress: Progress, batch: Batch) -> None:  # noqa: ARG002
        assert batch.raw is not None
        if batch.slots is not None:
            self.insert(gathered(batch.raw), gathered(batch.labels[: batch.fresh]))

    def insert(self, images: Tensor, labels: Tensor) -> None:
        """Free places are filled in order; then a row replaces the image drawn for it with probability C / (C + c)."""
        memory = self.memory
        of_batch, of_each = self.similarities(images, labels)
        values = {"images": images, "labels": labels, "score": (1 + of_each).clamp_min(SMALLEST)}
        number, scores = memory.fill(values), memory.get_buffer("score")
        candidates = memory.choose(torch.where(memory.full(), scores, 0.0), len(labels))
        held = scores[candidates]
        wins = torch.rand_like(held) < held / (held + values["score"])
        wins &= (number >= memory.places) & (of_batch < 0)
        self.entered[-1] += (wins | (number < memory.places)).sum()
        memory.enter(torch.where(wins, candidates, memory.places), values)

    def similarities(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The largest cosine of the batch's gradient, and of each image's, to sampled stored images'; 0 without any."""
        memory, count = self.memory, len(labels)
        stored = memory.at(memory.sample(self.options.compared))
        products = self.products(torch.cat([images, stored.images]), torch.cat([labels, stored.labels]))
        lengths = products.diagonal().clamp_min(1e-30).sqrt()
        of_batch, length = products[:count, count:].mean(dim=0), products[:count, :count].mean().clamp_min(1e-30).sqrt()
        of_each = products[:count, count:] / (lengths[:count, None] * lengths[count:])
        nonempty = self.nonempty()
        return (of_batch / (length * lengths[count:])).max() * nonempty, of_each.max(dim=1).values * nonempty

    def products(self, images: Tensor, labels: Tensor) -> Tensor:
        """<g_i, g_j> of uint8 images, without augmentation and in eval mode."""
        found = self.head_products if self.options.gradients == "head" else self.all_products
        with evaluating(self.network):
            return found(self.setting.normalise(images), labels)

    def head_products(self, images: Tensor, labels: Tensor) -> Tensor:
        """g_i = (p_i - y_i) ⊗ [norm f_i, 1] for the linear layer of each task's head, so no gradient is formed."""
        network = self.network
        feature = network.feature(images).float()
        logits = network.head(feature)
        wanted = functional.one_hot(labels, logits.shape[1])
        errors = logits.softmax(dim=1) - wanted if self.options.loss == "ce" else logits.sigmoid() - wanted
        parts = [cast(Head, part) for part in network.head.parts]
        sizes = [part.linear.out_features for part in parts]
        products = torch.zeros(len(labels), len(labels), device=labels.device)
        for part, error in zip(parts, errors.split(sizes, dim=1), strict=True):
            normed = part.norm(feature)
            products += (error @ error.T) * (normed @ normed.T + 1)
        return products

    def all_products(self, images: Tensor, labels: Tensor) -> Tensor:
        def loss(logits: Tensor, label: Tensor) -> Tensor:
            return losses(self.options.loss, logits[None], label[None])[0]

        found = gradients_per_image(self.network, dict(self.network.named_parameters()), loss, images, labels)
        return found @ found.T

    def counted(self) -> dict[str, list[int]]:
        return {"entered": self.entered.tolist()}
