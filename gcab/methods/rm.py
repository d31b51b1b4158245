"""Rainbow Memory: stored images of every class range from certain to uncertain; CutMix (Bang et al., CVPR 2021).

Not here: AutoAugment (the run's own augmentation takes its place) and "blurry" tasks.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gcab.data.mixing import Boxes, inside
from gcab.data.perturbations import PERTURBATIONS, perturbed
from gcab.data.tasks import Batch, Progress, Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.card import Card, Compass
from gcab.methods.herding import in_order
from gcab.methods.rehearsal import Replayed, ReplayedOptions
from gcab.methods.space import OneOf, space
from gcab.model.encoder import initialise
from gcab.parallel.ranks import gathered, rows


@dataclass(frozen=True)
class RmOptions(ReplayedOptions):
    """Half of what a step sees is stored images, as published."""

    cutmix: float = 0.5  # probability that a batch is mixed; authors
    new_head: bool = False  # authors: true, every task starts with a new classifier of all classes, old ones too

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.cutmix <= 1:
            raise GcabError(f"options.cutmix is {self.cutmix}: give a probability from 0 to 1.")


class Rm(Replayed):
    """Keeps images at equal steps of uncertainty, the disagreement of predictions on perturbed views of an image."""

    Options: ClassVar[type[Any]] = RmOptions
    summary = "Rainbow Memory: images from certain to uncertain, CutMix (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Bang et al., CVPR 2021",
        stores="images of every class, from certain to uncertain",
        differs="disjoint tasks, not blurry ones; no AutoAugment; old heads are kept (`options.new_head`)",
        compass=Compass(episodic_memory="supervised", uncertainty="unsupervised"),
    )
    search_space = space(cutmix=OneOf(0.0, 0.5, 1.0))
    options: RmOptions

    def grow(self, task: Task) -> None:
        super().grow(task)
        if self.options.new_head:
            initialise(self.network.head)

    def batch(self, batch: Batch) -> Batch:
        """CutMix, α = 1: a box of every image from another one, for all images of the batch or for none."""
        if self.options.cutmix == 0:
            return batch
        images, labels, device = gathered(batch.images), gathered(batch.labels), batch.images.device
        share, along, across, chance = torch.rand(4, device=device)
        replaced = inside(Boxes(1 - share, along, across), *images.shape[2:]) & (chance < self.options.cutmix)
        order = torch.rand(len(images), device=device).argsort()
        mixed = torch.where(replaced, rows(images[order]), batch.images)
        kept = 1 - replaced.float().mean()
        return replace(batch, images=mixed, targets={"labels_inside": rows(labels[order]), "kept": kept})

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        logits = self.network(batch.images)
        own = self.classification(logits, batch.labels)
        if not batch.targets:
            return {"classification": own}
        kept, inside = batch.targets["kept"], self.classification(logits, batch.targets["labels_inside"])
        return {"classification": kept * own + (1 - kept) * inside}

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        candidates = data.joined(self.memory.everything())
        labels = candidates.labels.cpu()
        shuffled = torch.randperm(len(labels))
        worth = shuffled.double() if task.index == 0 else self.uncertainty(candidates.images)
        share = self.options.buffer // (task.first + task.classes)
        chosen = in_order(labels, lambda positions: at_equal_steps(worth[positions], share))
        left = shuffled[~torch.isin(shuffled, chosen)]
        kept = torch.cat([chosen, left])[: self.options.buffer].to(candidates.labels.device)
        self.memory.rewrite(candidates.images[kept], candidates.labels[kept])

    def preview_end(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        """Nothing, as what it stores does not change predictions."""

    def uncertainty(self, images: Tensor) -> Tensor:
        """u = 1 - (most votes) / 12 over the predictions on perturbed views: (n,), on the CPU."""
        device = self.memory.labels.device
        answers = [
            self.setting.outputs(lambda part: self.network(part).argmax(dim=1), view, device).long()
            for view in perturbed(images)
        ]
        votes = functional.one_hot(torch.stack(answers)).sum(dim=0)  # (n, classes)
        return 1 - votes.amax(dim=1).cpu().double() / len(PERTURBATIONS)


def at_equal_steps(worth: Tensor, count: int) -> Tensor:
    """Positions of ranks 0, s, 2s, ... with s = n / count, from the lowest worth on; ties in their original order."""
    order = worth.argsort(stable=True)
    return order[:: max(1, len(order) // count)][:count] if count else order[:0]
