"""Experience replay with tricks: images of frequent classes and of small loss are replaced first (Buzzega et al. 2021).

One of the five tricks is common to all methods here: stored images are augmented anew at each draw.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gcab.data.tasks import Batch, Part, Progress, Setting, Task, TaskImages
from gcab.errors import GcabError, check_options
from gcab.methods.card import Card, Compass
from gcab.methods.method import cross_entropy, losses
from gcab.methods.rehearsal import Replayed, ReplayedOptions
from gcab.methods.space import Between, OneOf, space
from gcab.model.exact import at, in_double
from gcab.parallel.ranks import gathered

SMALLEST_SCALE = 1e-3  # lower bound of s: a negative scale would reverse the ranking of classes
CORRECTED_AT_ONCE = 32  # batch size of the bias correction


@dataclass(frozen=True)
class ErtOptions(ReplayedOptions):
    """The authors' values."""

    balanced: bool = True  # an image of a frequent class is more likely to be replaced
    loss_aware: bool = True  # so is one whose loss is small
    corrected: bool = True  # the newest task's logits are scaled and shifted after each task
    correction_epochs: int = 50
    correction_rate: float = 0.5
    task_rate: float = 0.83  # on the learning rate, for each task; authors: for each image, 0.16 after ten tasks

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self, weights=("correction_epochs", "correction_rate"))
        if not 0 < self.task_rate <= 1:
            raise GcabError(f"options.task_rate is {self.task_rate}: give a share above 0, up to 1.")


class Ert(Replayed):
    """L = CE(B ∪ drawn); for predictions the logits z of the newest task become s z + b (bias correction)."""

    Options: ClassVar[type[Any]] = ErtOptions
    summary = "ER with tricks: balanced, loss-aware memory and bias correction (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Buzzega et al., ICPR 2020",
        stores="images in a reservoir balanced by class and loss, a loss of each; scale and shift of new logits",
        differs="the scale starts at 1 and stays above 0; the rate falls from task to task, not from image to image",
        compass=Compass(task_agnostic="supervised", episodic_memory="supervised"),
    )
    search_space = space(correction_rate=Between(0.05, 1), task_rate=OneOf(0.7, 0.83, 1.0))
    purposes: ClassVar[dict[str, str]] = {"correction": "scale and shift of the newest task's logits"}
    ahead = False
    columns: ClassVar[dict[str, Tensor]] = {"loss": torch.zeros(())}  # when the image was last drawn
    correction: Tensor
    options: ErtOptions

    def __init__(self, setting: Setting, options: ErtOptions) -> None:
        super().__init__(setting, options)
        self.register_buffer("correction", torch.tensor([1.0, 0.0]))  # s, b
        self.latest: Tensor | None = None  # losses of all images, from `loss` to `after_step`

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.correction = self.correction.new_tensor([1.0, 0.0])

    def rate(self, task: Task, epoch: int) -> float:  # noqa: ARG002
        return self.options.task_rate**task.index

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        logits = self.network(batch.images)
        self.latest = losses(self.options.loss, logits.detach().float(), batch.labels)
        return {"classification": self.rehearsed(logits, batch)}

    @torch.no_grad()
    def after_step(self, progress: Progress, batch: Batch) -> None:  # noqa: ARG002
        assert batch.raw is not None
        assert self.latest is not None
        if batch.slots is not None:
            self.memory.update(batch.slots, loss=self.latest[batch.fresh :])
            entries = {"images": batch.raw, "labels": batch.labels, "loss": self.latest}
            self.insert({name: gathered(value[: batch.fresh]) for name, value in entries.items()})
        self.latest = None

    def insert(self, values: dict[str, Tensor]) -> None:
        """Reservoir sampling decides whether an image enters; `scores` decide which one it replaces."""
        memory = self.memory
        number = memory.fill(values)
        exact = in_double(number.device)
        drawn = torch.rand(len(number), dtype=torch.float64, device=exact) * at(number + 1, exact)
        accepted = (number >= memory.places) & at(drawn < memory.places, number.device)
        chosen = memory.choose(self.scores(), len(number))
        memory.enter(torch.where(accepted, chosen, memory.places), values)

    def scores(self) -> Tensor:
        """Sampling weights for replacement, min-max scaled to 0..1 over stored images; all 1 where they are equal."""
        memory, options, full = self.memory, self.options, self.memory.full()
        stored = memory.get_buffer("loss")
        often = ((memory.labels == memory.labels[:, None]) & full).sum(dim=1).float()  # images of the same class
        known = -stored
        if options.balanced and options.loss_aware:
            sizes = [torch.where(full, size, 0).sum() / memory.filled.clamp_min(1) for size in (stored.abs(), often)]
            known = known / (sizes[0] * sizes[1]).clamp_min(1e-12)
        merged = 0.5 * known * options.loss_aware + 0.5 * often * options.balanced
        low, high = torch.where(full, merged, torch.inf).min(), torch.where(full, merged, -torch.inf).max()
        return torch.where(full, torch.where(high > low, (merged - low) / (high - low), 1.0), 0.0)

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        stored = self.memory.everything()
        if self.options.corrected and self.known > 0 and len(stored.labels) > 0:
            self.correction.copy_(self.fitted(self.answers(stored.images), stored.labels))

    @torch.enable_grad()
    def fitted(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Maximum-likelihood s and b on the stored images, by SGD from s = 1 and b = 0; authors: from s = 0."""
        found = self.correction.detach().clone().requires_grad_()
        optimiser = torch.optim.SGD([found], lr=self.options.correction_rate)
        for _ in range(self.options.correction_epochs):
            for part in torch.randperm(len(labels)).split(CORRECTED_AT_ONCE):
                optimiser.zero_grad()
                cross_entropy(self.correct(logits[part], found), labels[part]).backward()
                optimiser.step()
                found.data[0].clamp_min_(SMALLEST_SCALE)
        return found.detach()

    def correct(self, logits: Tensor, correction: Tensor) -> Tensor:
        """The newest task's logits scaled and shifted."""
        scale, shift = correction
        return torch.cat([logits[:, : self.known], scale * logits[:, self.known :] + shift], dim=1)

    def predict(self, images: Tensor) -> Tensor:
        return self.correct(super().predict(images), self.correction)

    def parts(self) -> dict[str, Part]:
        """Logits with and without the bias correction."""

        def plain(_: Tensor, features: Tensor) -> Tensor:
            return self.network.head(self.network.decode(features))

        def corrected(images: Tensor, features: Tensor) -> Tensor:
            return self.correct(plain(images, features), self.correction)

        return {"heads, corrected": corrected, "heads, not corrected": plain}

    def prototype_bytes(self) -> int:
        return super().prototype_bytes() + self.correction.nbytes
