"""A method that writes down what the trainer does with it: one weight, a loss that pulls it towards the mean pixel."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gcab.data.tasks import Batch, Progress, Replay, Setting, Task, TaskImages
from gcab.methods.gradients import Gradients
from gcab.methods.method import Method
from gcab.model.encoder import EncoderConfig

SETTING = Setting(
    EncoderConfig(), 2, mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255)
)  # pixels stay what they are


@dataclass(frozen=True)
class NoOptions:
    """Nothing to choose."""


class CountingMethod(Method):
    """`calls` is its diary."""

    Options: ClassVar[type[Any]] = NoOptions
    summary = "a diary"

    def __init__(self, stored: TaskImages | None = None) -> None:
        super().__init__(SETTING, NoOptions())
        self.weight = nn.Parameter(torch.zeros(()))
        self.frozen = nn.Parameter(torch.ones(()), requires_grad=False)
        self.stored = stored
        self.calls: list[str] = []
        self.batches: list[Batch] = []
        self.progress: list[tuple[int, int]] = []

    def grow(self, task: Task) -> None:
        self.calls.append(f"grow {task.index}")

    def replay(self, count: int) -> Replay | None:
        self.calls.append(f"replay {count}")
        if self.stored is None:
            return None
        return Replay(self.stored.images, self.stored.labels, torch.arange(len(self.stored.labels)))

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        self.calls.append("loss")
        self.batches.append(batch)
        self.progress.append((int(progress.step), progress.steps))
        error = self.weight - batch.images.mean()
        return {"classification": error.square(), "penalty": 0.5 * self.weight.abs()}

    def before_step(self, progress: Progress, batch: Batch, gradients: Gradients) -> None:  # noqa: ARG002
        assert self.weight.grad is not None
        self.calls.append(f"before {int(progress.step)}")

    def after_step(self, progress: Progress, batch: Batch) -> None:  # noqa: ARG002
        self.calls.append(f"after {int(progress.step)}")

    def predict(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3))
