"""One training step (augment, forward, backward, gate, clip, update) and how an epoch of them is run."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from gcab.data.augment import Augment
from gcab.data.tasks import Batch, Progress
from gcab.methods.gradients import Gradients
from gcab.methods.method import Method
from gcab.training.feed import Feed


class Step:
    """The same step for every method; it never synchronises with the device."""

    def __init__(
        self,
        method: Method,
        optimiser: torch.optim.Optimizer,
        augment: Augment,
        random: torch.Generator,
        clip: float,
        bfloat16: bool,
    ) -> None:
        self.method, self.optimiser, self.augment, self.random = method, optimiser, augment, random
        self.clip, self.bfloat16 = clip, bfloat16
        self.weights: Callable[[], AbstractContextManager[None]] = nullcontext  # how the loss sees the weights
        self.loss: Callable[[Batch, Progress], dict[str, Tensor]] = method.loss

    def __call__(self, images: Tensor, labels: Tensor, progress: Progress) -> dict[str, Tensor]:
        """Returns the loss terms, detached."""
        return self.learn(self.prepare(images, labels), progress)

    @torch.no_grad()
    def prepare(self, images: Tensor, labels: Tensor) -> Batch:
        """The part of a step that may run ahead of the previous one: replay, augmentation, targets."""
        fresh, slots, raw = len(labels), None, None if self.method.ahead else images
        replayed = self.method.replay(fresh)
        if replayed is not None:
            images, labels = torch.cat([images, replayed.images]), torch.cat([labels, replayed.labels])
            slots = replayed.slots
        with self.precision(images.device):
            augmented, mixed = self.augment.mix(self.augment(images, self.random), labels, self.random)
            return self.method.batch(Batch(augmented, labels, fresh, slots, raw, mixed=mixed))

    def learn(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        """Forward, backward, update."""
        learning = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        self.optimiser.zero_grad(set_to_none=True)
        with self.precision(batch.images.device), self.weights():
            terms = self.loss(batch, progress)
        torch.stack([term.float() for term in terms.values()]).sum().backward()
        self.method.before_step(progress, batch, Gradients(learning, self.evaluate))
        if self.clip > 0:
            torch.nn.utils.clip_grad_norm_(learning, self.clip)
        self.optimiser.step()
        self.method.after_step(progress, batch)
        return {name: term.detach().float() for name, term in terms.items()}

    def evaluate(self, loss: Callable[[], Tensor]) -> Tensor:
        """Another loss, computed in the precision of the step."""
        with self.precision(next(self.method.parameters()).device), self.weights():
            return loss().float()

    def precision(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16)


class Steps(Protocol):
    """The protocol of an epoch's step loop."""

    names: list[str]

    def run(self, order: Tensor) -> Tensor:
        """Train on the images `order` (steps, batch) names; the loss terms of each step, (steps, terms)."""


class PlainSteps:
    """An eager step loop, driven from Python; works on every device."""

    def __init__(self, step: Step, feed: Feed) -> None:
        self.step, self.feed = step, feed
        self.positions = torch.arange(feed.steps, device=feed.device)
        self.names: list[str] = []

    def run(self, order: Tensor) -> Tensor:
        history = []
        for position, (images, labels) in zip(self.positions, self.feed.batches(order), strict=True):
            terms = self.step(images, labels, Progress(position, self.feed.steps))
            history.append(torch.stack(list(terms.values())))
            self.names = list(terms)
        return torch.stack(history)
