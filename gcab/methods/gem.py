"""Gradient episodic memory: a step may make the stored images of no task worse (Lopez-Paz and Ranzato 2017).

The condition holds for the gradient; what an adaptive optimiser makes of it is another matter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from gcab.data.tasks import Batch, Replay
from gcab.errors import GcabError
from gcab.methods.agem import Agem, AgemOptions
from gcab.methods.card import Card, Compass
from gcab.methods.gradients import Gradients
from gcab.methods.method import losses
from gcab.methods.space import Between, space
from gcab.model.exact import at, in_double
from gcab.parallel.ranks import rows, world

ITERATIONS, RESTART = 200, 25  # of the search for v, which is exact to rounding for a handful of tasks


@dataclass(frozen=True)
class GemOptions(AgemOptions):
    """The authors' values; with `replay` 0 all stored images are looked at in each step, as published."""

    strength: float = 0.5  # γ: how much every past task is helped whenever one is violated
    ridge: float = 1e-3  # ε, of gradients scaled to length 1, as late ones are so small that it would be all there is

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("strength", "ridge"):
            if not 0 <= getattr(self, name) < math.inf:
                raise GcabError(f"options.{name} is {getattr(self, name)}: give 0 or more.")

    def of_each(self, past: int) -> int:
        """Images of each of so many past tasks that a step looks at."""
        stored = self.buffer // past
        return min(stored, max(1, self.replay // past)) if self.replay else stored


class Gem(Agem):
    """g̃ = g + Gᵀv where any <g, g_s> < 0, with a gradient g_s for the stored images of each past task s."""

    Options: ClassVar[type[Any]] = GemOptions
    summary = "GEM: gradients are projected so that the images of no task get worse (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Lopez-Paz and Ranzato, NeurIPS 2017",
        stores="images, as many of every task and class",
        differs="reference gradients have length 1; random images, not the last; learns and answers over all classes",
        compass=Compass(episodic_memory="supervised"),
    )
    search_space = space(strength=Between(0.1, 1))
    options: GemOptions

    def replay(self, count: int) -> Replay | None:  # noqa: ARG002
        """Stored images, task after task, as many places for each."""
        if not self.rehearses() or self.share() == 0:
            return None
        return self.memory.at(rows(self.places().flatten()))

    def share(self) -> int:
        """Places for each past task, a multiple of the number of processes."""
        return -(-self.options.of_each(len(self.ends) - 1) // world()) * world()

    @classmethod
    def looked_at(cls, options: Any, fresh: int, classes: Sequence[int]) -> int:  # noqa: ARG003
        past = len(classes) - 1
        return past * int(options.of_each(past)) if past else 0

    def counts(self) -> Tensor:
        """Stored images of each past task, (tasks, 1)."""
        past = torch.arange(len(self.ends) - 1, device=self.ends.device)
        tasks = self.tasks_of_labels(self.memory.labels)
        return ((tasks == past[:, None]) & self.memory.full()).sum(dim=1, keepdim=True)

    def counting(self) -> Tensor:
        """Which of a task's places are filled, (tasks, share)."""
        return torch.arange(self.share(), device=self.ends.device) < self.counts()

    def places(self) -> Tensor:
        """Where the images of each past task are, (tasks, share): all of them, or as many as are asked for, drawn."""
        counts = self.counts()
        turn = torch.arange(self.share(), device=counts.device).expand(len(counts), -1)
        if self.options.replay:
            keys = torch.rand(len(counts), self.memory.places, device=counts.device)
            keys = keys.masked_fill(torch.arange(self.memory.places, device=counts.device) >= counts, -1.0)
            turn = keys.argsort(dim=1, descending=True)[:, : self.share()]
        first = counts.cumsum(dim=0) - counts  # images lie in the order of tasks
        return torch.where(self.counting(), first + turn, 0)

    def references(self, batch: Batch, gradients: Gradients) -> Tensor:
        """g_s of all past tasks: (tasks, weights)."""
        past = len(self.ends) - 1
        images, labels = batch.images[batch.fresh :].chunk(past), batch.labels[batch.fresh :].chunk(past)
        counting = self.counting()
        weights = counting * world() / counting.sum(dim=1, keepdim=True).clamp_min(1)

        def loss(task: int) -> Tensor:
            each = losses(self.options.loss, self.network(images[task]).float(), labels[task])
            return (each * rows(weights[task])).sum()

        return torch.stack([gradients.of(partial(loss, task)) for task in range(past)])

    def projected(self, own: Tensor, references: Tensor) -> Tensor:
        lengths = references.norm(dim=1)
        unit = references / lengths.clamp_min(1e-30)[:, None]
        exact = in_double(own.device)
        gram, along, lengths = (at(value, exact).double() for value in (unit @ unit.T, unit @ own, lengths))
        v = least(
            gram + self.options.ridge * torch.eye(len(unit), device=exact), along, self.options.strength * lengths
        )
        return own + at(v.float(), own.device) @ unit


def least(p: Tensor, q: Tensor, lowest: Tensor) -> Tensor:
    """argmin ½ vᵀPv + qᵀv subject to v ≥ `lowest`: projected gradients with momentum, which now and then starts anew.

    Always the same few kernels, so that it may be recorded; P is positive definite.
    """
    rate = 1 / p.abs().sum(dim=1).max()  # no eigenvalue of P is larger
    shrink, shift = torch.eye(len(q), dtype=p.dtype, device=p.device) - rate * p, -rate * q
    v = ahead = lowest
    for iteration in range(ITERATIONS):
        new = torch.maximum(torch.addmv(shift, shrink, ahead), lowest)
        age = iteration % RESTART
        v, ahead = new, torch.lerp(v, new, 1 + age / (age + 3))
    return v
