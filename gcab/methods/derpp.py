"""DER++: stored images keep the logits that they had when they were stored, and their labels (Buzzega et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gcab.data.tasks import Batch, Progress, Replay, Setting, Task
from gcab.errors import check_options
from gcab.methods.card import Card, Compass
from gcab.methods.rehearsal import Replayed, ReplayedOptions
from gcab.methods.space import Between, space
from gcab.parallel.ranks import rows, world


@dataclass(frozen=True)
class DerppOptions(ReplayedOptions):
    """Mammoth's values for 200 images of CIFAR-10; 0.2 / 0.5 at 500, Tiny-ImageNet 0.1 / 1.0 at 200."""

    alpha: float = 0.1  # of the distance between logits
    beta: float = 0.5  # of the labels, for a second draw
    future: Literal["ignore", "zero"] = "ignore"  # logits of classes that came later; zero: near what the published
    # network, which has outputs for all classes from the start, gives them

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self, weights=("alpha", "beta"))

    @property
    def draws(self) -> int:
        """Draws from the memory in each step: one for each term that has a weight."""
        return (self.alpha > 0) + (self.beta > 0)


class Derpp(Replayed):
    """L = CE(B) + α MSE(z(x'), z') + β CE(x'', y'') with two draws; a reservoir is filled by every step."""

    Options: ClassVar[type[Any]] = DerppOptions
    summary = "DER++: stored images keep their logits and labels (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Buzzega et al., NeurIPS 2020",
        stores="a reservoir of images, each with the logits it had when it entered",
        differs="heads grow, so logits of classes that came later are left out (`options.future`)",
        compass=Compass(episodic_memory="unsupervised"),
    )
    search_space = space(alpha=Between(0.03, 1), beta=Between(0.1, 2))
    ahead = False
    columns: ClassVar[dict[str, Tensor]] = {"logits": torch.zeros(0)}  # of the augmented image, in the step that saw it
    options: DerppOptions

    def __init__(self, setting: Setting, options: DerppOptions) -> None:
        super().__init__(setting, options)
        self.latest: Tensor | None = None  # logits of the fresh images, from `loss` to `after_step`

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.memory.widen("logits", task.classes)

    def replay(self, count: int) -> Replay | None:
        """A draw for each of the two terms, one after the other."""
        if not self.rehearses() or self.options.draws == 0:
            return None
        slots = [self.memory.sample(self.drawn(count) * world()) for _ in range(self.options.draws)]
        return self.memory.at(rows(torch.cat(slots)))

    @classmethod
    def looked_at(cls, options: Any, fresh: int, classes: Sequence[int]) -> int:
        return int(options.draws) * super().looked_at(options, fresh, classes)

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        logits, fresh, options = self.network(batch.images), batch.fresh, self.options
        self.latest = logits[:fresh].detach()
        terms = {"classification": self.classification(logits[:fresh], batch.labels[:fresh])}
        if batch.slots is None:
            return terms
        parts = (logits[fresh:], batch.labels[fresh:], batch.slots)
        draws = list(zip(*(part.chunk(options.draws) for part in parts), strict=True))
        if options.alpha > 0:
            terms["logits"] = options.alpha * self.nonempty() * self.distance(*draws[0])
        if options.beta > 0:
            old, labels, _ = draws[-1]
            terms["replay"] = options.beta * self.nonempty() * self.classification(old, labels)
        return terms

    def distance(self, logits: Tensor, labels: Tensor, slots: Tensor) -> Tensor:
        """Mean squared error over images and over the classes that were known when each was stored."""
        squares = (logits.float() - self.memory.get_buffer("logits")[slots]).square()
        if self.options.future == "zero":
            return squares.mean()
        known = self.ends[self.tasks_of_labels(labels)][:, None]
        counting = torch.arange(logits.shape[1], device=known.device) < known
        return ((squares * counting).sum(dim=1, keepdim=True) / known).mean()

    def after_step(self, progress: Progress, batch: Batch) -> None:  # noqa: ARG002
        assert batch.raw is not None
        assert self.latest is not None
        if self.options.buffer > 0:
            self.memory.reservoir(batch.raw, batch.labels[: batch.fresh], logits=self.latest.float())
        self.latest = None
