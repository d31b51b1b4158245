"""The only training loop: every method, one task at a time."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gcab.config import TrainingConfig
from gcab.data.augment import Augment
from gcab.errors import GcabError
from gcab.methods.method import Method, Progress, Task, TaskImages
from gcab.training.feed import Feed
from gcab.training.schedule import learning_rate, make_optimiser
from gcab.training.seeds import generator, seeded
from gcab.training.step import Step


@dataclass(frozen=True)
class Epoch:
    """What one epoch did: its number counts from 1, its losses are means over its steps."""

    task: Task
    number: int
    steps: int
    losses: dict[str, float]
    lr: float
    seconds: float


@dataclass(frozen=True)
class Halfway:
    """A task's training after some of its epochs, as a checkpoint brings it back."""

    epochs: int
    optimiser: dict[str, Any]


class Trainer:
    """Trains a method on one task after another; all randomness follows from the seed, the task and the epoch."""

    def __init__(
        self, method: Method, config: TrainingConfig, augment: Augment, device: torch.device, seed: int
    ) -> None:
        self.method, self.config, self.augment, self.device, self.seed = method, config, augment, device, seed
        self.bfloat16 = config.precision == "bfloat16" or (config.precision == "auto" and device.type == "cuda")
        self.optimiser: torch.optim.Optimizer | None = None

    def fit(
        self, task: Task, data: TaskImages, after_epoch: Callable[[Epoch], None], halfway: Halfway | None = None
    ) -> None:
        """All epochs of a task, or those that are left of it."""
        feed = Feed(data, self.config.batch_size, self.device)
        self.optimiser = make_optimiser(self.config, self.method.parameters())
        if halfway is not None:
            self.optimiser.load_state_dict(halfway.optimiser)
        step = Step(self.method, self.optimiser, self.augment, self.config.clip, self.bfloat16)
        self.method.zero_grad(set_to_none=True)
        self.method.train()
        for epoch in range(halfway.epochs if halfway else 0, self.config.epochs):
            with seeded(self.seed, "epoch", task.index, epoch):
                after_epoch(self.train_epoch(task, epoch, feed, step))
        self.method.eval()

    def train_epoch(self, task: Task, epoch: int, feed: Feed, step: Step) -> Epoch:
        start = time.perf_counter()
        lr = learning_rate(self.config, epoch)
        for group in step.optimiser.param_groups:
            group["lr"] = lr
        random = generator(self.seed, "augment", task.index, epoch, device=self.device)
        shuffle = generator(self.seed, "shuffle", task.index, epoch)
        history: list[Tensor] = []
        names: list[str] = []
        for number, (images, labels) in enumerate(feed.epoch(shuffle)):
            progress = Progress(torch.tensor(number, device=self.device), feed.steps)
            terms = step(images, labels, progress, random)
            names = list(terms)
            history.append(torch.stack(list(terms.values())))
        losses = torch.stack(history).cpu()  # (steps, terms): the epoch's one wait for the device
        require_finite(losses, task, epoch)
        means = dict(zip(names, losses.double().mean(dim=0).tolist(), strict=True))
        return Epoch(task, epoch + 1, feed.steps, means, lr, time.perf_counter() - start)


def require_finite(losses: Tensor, task: Task, epoch: int) -> None:
    """Stop at a loss that is not a number; what was saved before it stays."""
    bad = (~losses.isfinite().all(dim=1)).nonzero()
    if len(bad):
        step = int(bad[0])
        value = "infinite" if math.isinf(float(losses[step].sum())) else "not a number"
        raise GcabError(
            f"the loss became {value} in task {task.index + 1}, epoch {epoch + 1}, step {step + 1}: "
            "the last good checkpoint is kept; try a lower training.lr or training.precision=float32."
        )


def grow(method: Method, task: Task, seed: int) -> None:
    """Add a task's parameters with the initial values its place in the run gives it."""
    with seeded(seed, "grow", task.index):
        method.grow(task)


def finish(method: Method, task: Task, data: TaskImages, seed: int) -> None:
    """End a task with the random choices its place in the run gives it."""
    with seeded(seed, "end", task.index):
        method.end_task(task, data)
