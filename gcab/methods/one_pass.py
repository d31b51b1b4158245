"""Training of the one distilled pass (paper, section "GCAB Distillation"), which can be stopped and resumed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gcab.fast.folded import fast_logits
from gcab.fast.graphs import recordable_rate, recorded_step, restore_optimiser, set_learning_rate
from gcab.methods.distillation import softened_divergence
from gcab.methods.modes import learning
from gcab.model.network import GatedNetwork, Masks

if TYPE_CHECKING:
    from gcab.methods.gcab_fast import GcabFastOptions


@dataclass(frozen=True)
class Halfway:
    """The state of an imitation after some of its steps, restored from a checkpoint."""

    steps: int
    state: dict[str, Any]


class Imitation:
    """Trains block, token and head of the student by KL(teacher || student).

    With `state` in a checkpoint it resumes, bit for bit.
    """

    def __init__(self, network: GatedNetwork, features: Tensor, logits: Tensor, options: "GcabFastOptions") -> None:
        self.network, self.features, self.logits, self.options = network, features, logits, options
        self.learning = [*network.block.parameters(), *network.tokens.parameters(), *network.heads.parameters()]
        self.steps = 0  # done
        self.position = torch.zeros(1, dtype=torch.long, device=features.device)  # `steps` in a recorded step
        picks = torch.randint(len(features), (options.distillation_steps, options.distillation_batch))
        self.picks = picks.to(features.device)
        lr = recordable_rate(options.distillation_lr, features.device)
        self.optimiser = torch.optim.Adam(self.learning, lr=lr, capturable=features.is_cuda, fused=True)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint after a step; all else follows from images, teacher and seed."""
        return {"learned": self.learning, "optimiser": self.optimiser.state_dict()}

    @torch.no_grad()
    def resume(self, halfway: Halfway) -> None:
        """Restore the state of a checkpoint."""
        for parameter, learned in zip(self.learning, halfway.state["learned"], strict=True):
            parameter.copy_(learned)
        restore_optimiser(self.optimiser, halfway.state["optimiser"])
        self.steps = halfway.steps
        self.position.fill_(halfway.steps)

    def run(self, after_step: Callable[[], object]) -> None:
        """Run the remaining steps."""
        with torch.no_grad():
            masks = self.network.masks(0)
        steps, lr = self.options.distillation_steps, self.options.distillation_lr
        with learning(self.learning):
            step = recorded_step(lambda: self.step(masks), [*self.learning, self.position], self.optimiser)
            for number in range(self.steps, steps):
                set_learning_rate(self.optimiser, lr * math.cos(math.pi / 2 * number / steps) ** 2)
                step()
                self.steps = number + 1
                after_step()

    def step(self, masks: Masks) -> None:
        """One batch of views."""
        pick = self.picks.index_select(0, self.position % len(self.picks)).squeeze(0)  # recording may run extra steps
        student = fast_logits(self.network, [self.features[pick]], [masks])
        self.optimiser.zero_grad()
        softened_divergence(student, self.logits[pick], self.options.temperature).backward()
        self.optimiser.step()
        self.position.add_(1)


AfterStep = Callable[[Imitation], object]
