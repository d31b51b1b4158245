"""Function distance regularisation: stored images keep the outputs of their task's end (Benjamin et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gcab.data.tasks import Batch, Progress, Replay, Task, TaskImages
from gcab.errors import check_options
from gcab.methods.card import Card, Compass
from gcab.methods.rehearsal import ReplayedOptions, SharedByTasks
from gcab.methods.space import Between, space

SMALLEST = 1e-12  # added under the square root, which has no gradient at 0


@dataclass(frozen=True)
class FdrOptions(ReplayedOptions):
    """Mammoth lists weights of 0.3 and 1 and never multiplies by them: 1."""

    weight: float = 1.0  # λ
    future: Literal["zero", "ignore"] = (
        "zero"  # outputs of classes that came later: zero is what the published network,
    )
    # with outputs for all classes from the start, has for them; ignored, they may claim every old image

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self, weights=("weight",))


class Fdr(SharedByTasks):
    """L = CE(B) + λ mean |softmax z(x') - softmax z'|₂, where z' has the classes that x' knew; in one step, not two."""

    Options: ClassVar[type[Any]] = FdrOptions
    summary = "FDR: stored images keep the outputs of the end of their task (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Benjamin et al., ICLR 2019",
        stores="images, as many of every task and class, with their outputs at the end of their task",
        differs="one step for both terms, where Mammoth takes two; outputs of classes that came later count as 0",
        compass=Compass(episodic_memory="supervised"),
    )
    search_space = space(weight=Between(0.1, 10))
    columns: ClassVar[dict[str, Tensor]] = {"logits": torch.zeros(0)}
    options: FdrOptions

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.memory.widen("logits", task.classes)

    def replay(self, count: int) -> Replay | None:
        return super().replay(count) if self.options.weight > 0 else None

    @classmethod
    def looked_at(cls, options: Any, fresh: int, classes: Sequence[int]) -> int:
        return super().looked_at(options, fresh, classes) if options.weight > 0 else 0

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        logits, fresh = self.network(batch.images), batch.fresh
        terms = {"classification": self.classification(logits[:fresh], batch.labels[:fresh])}
        if batch.slots is not None:
            distance = self.distance(logits[fresh:], batch.labels[fresh:], batch.slots)
            terms["function"] = self.options.weight * self.nonempty() * distance
        return terms

    def distance(self, logits: Tensor, labels: Tensor, slots: Tensor) -> Tensor:
        known = self.ends[self.tasks_of_labels(labels)][:, None]
        unknown = torch.arange(logits.shape[1], device=known.device) >= known
        before = self.memory.get_buffer("logits")[slots].masked_fill(unknown, -torch.inf).softmax(dim=1)
        ignored = unknown if self.options.future == "ignore" else torch.zeros_like(unknown)
        now = logits.float().masked_fill(ignored, -torch.inf).softmax(dim=1)
        return ((now - before).square().sum(dim=1) + SMALLEST).sqrt().mean()

    def stored_columns(self, images: TaskImages) -> dict[str, Tensor]:
        return {"logits": self.answers(images.images)}
