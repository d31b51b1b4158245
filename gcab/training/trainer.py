"""The only training loop: every method, one task at a time."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gcab.data.augment import Augment
from gcab.data.tasks import OnProgress, Task, TaskImages, ignore
from gcab.errors import GcabError
from gcab.fast.graphs import restore_optimiser, set_learning_rate
from gcab.methods.method import Method
from gcab.model.exact import in_double
from gcab.parallel.ranks import make_equal, mean
from gcab.seeds import derived_seed, generator, seeded
from gcab.training.distributed import shared_loss
from gcab.training.feed import Feed
from gcab.training.recorded import make_steps
from gcab.training.schedule import TrainingConfig, learning_rate, make_optimiser
from gcab.training.step import Step


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch: its number counts from 1, its losses are means over its steps."""

    task: Task
    number: int
    steps: int
    losses: dict[str, float]
    lr: float
    seconds: float


@dataclass(frozen=True)
class HalfwayTask:
    """The state of a task's training after some of its epochs, restored from a checkpoint."""

    epochs: int
    optimiser: dict[str, Any]


class DivergedError(GcabError):
    """The loss became NaN or infinite; callers without checkpoints raise it again with advice of their own."""

    def __init__(self, where: str) -> None:
        self.where, self.advice = where, "try a lower training.lr or training.precision=float32."
        super().__init__(f"{where}: the last good checkpoint is kept; {self.advice}")


class Trainer:
    """Trains a method on one task after another; all randomness follows from the seed, the task and the epoch."""

    def __init__(
        self,
        method: Method,
        config: TrainingConfig,
        augment: Augment,
        device: torch.device,
        seed: int,
        explain: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.method, self.config, self.augment, self.device, self.seed = method, config, augment, device, seed
        self.explain = explain
        self.bfloat16 = config.in_bfloat16(on_gpu=device.type == "cuda")
        self.optimiser: torch.optim.Optimizer | None = None

    def fit(
        self,
        task: Task,
        data: TaskImages,
        after_epoch: Callable[[Epoch], bool | None],
        halfway: HalfwayTask | None = None,
    ) -> None:
        """Train a task's remaining epochs; the callback `after_epoch` stops it early by returning true."""
        if not self.method.trains:
            return
        config = replace(self.config, epochs=self.config.epochs_of(task.index), first_task=1.0)
        feed = Feed(data.joined(self.method.among()), config.batch_size, self.device)
        self.optimiser = make_optimiser(config, self.method.parameters())
        if halfway is not None:
            restore_optimiser(self.optimiser, halfway.optimiser)
        random = torch.Generator(in_double(self.device))
        self.method.zero_grad(set_to_none=True)
        self.method.train()
        step = Step(self.method, self.optimiser, self.augment, random, config.clip, self.bfloat16)
        step.loss = shared_loss(self.method)
        steps = make_steps(step, feed, self.explain)
        for epoch in range(halfway.epochs if halfway else 0, config.epochs):
            start = time.perf_counter()
            set_learning_rate(self.optimiser, lr := learning_rate(config, epoch) * self.method.rate(task, epoch))
            random.manual_seed(derived_seed(self.seed, "augment", task.index, epoch))
            with seeded(self.seed, "epoch", task.index, epoch):
                order = feed.order(generator(self.seed, "shuffle", task.index, epoch))
                losses = mean(steps.run(order).cpu())  # (steps, terms): the epoch's one synchronisation
            require_finite(losses, task, epoch)
            means = dict(zip(steps.names, losses.double().mean(dim=0).tolist(), strict=True))
            if after_epoch(Epoch(task, epoch + 1, feed.steps, means, lr, time.perf_counter() - start)):
                break
        self.method.eval()


def require_finite(losses: Tensor, task: Task, epoch: int) -> None:
    """Raise at the first loss that is not finite; earlier checkpoints stay."""
    bad = (~losses.isfinite().all(dim=1)).nonzero()
    if len(bad):
        step = int(bad[0])
        value = "infinite" if math.isinf(float(losses[step].sum())) else "not a number"
        raise DivergedError(f"the loss became {value} in task {task.index + 1}, epoch {epoch + 1}, step {step + 1}")


def finish(
    method: Method,
    task: Task,
    data: TaskImages,
    seed: int,
    watch: OnProgress = ignore,
    held_out: TaskImages | None = None,
    augment: Augment | None = None,
) -> None:
    """Call `end_task` with a seed of run and task; `watch` is the progress callback of a long one.

    Every process sees all images here, so each augments all of them itself.
    """
    method.watch = watch
    method.augment = augment and Augment(augment.config, augment.mean, augment.std)
    try:
        with seeded(seed, "end", task.index):
            method.end_task(task, data, held_out)
    finally:
        method.watch, method.augment = ignore, None
    make_equal(method.state_dict().values())


def preview(method: Method, task: Task, data: TaskImages, seed: int, held_out: TaskImages | None) -> None:
    """End a task early, without its expensive work, on a throw-away copy that is then evaluated."""
    with seeded(seed, "end", task.index):
        method.preview_end(task, data, held_out)
