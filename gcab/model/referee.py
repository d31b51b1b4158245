"""The referee: weighs opinions (logits of heads, class statistics and eye) by one temperature each.

Not in the paper. Opinions have scales of their own, and each is over- or underconfident in its own way. A temperature
each calibrates them, and calibrated opinions can be added up. It is fitted on held-out images of the newest task alone,
so no image has to be kept.

Heads know the class within a task better than the task. With `within`, they count for more in the one than the other.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from gcab.model.exact import at, in_double

HEADS, STATISTICS, EYE = "heads", "statistics", "eye"
# Weights of calibrated opinions (chosen on held-out images of CIFAR-100): heads and statistics share an encoder.
SHARES = {HEADS: 0.75, STATISTICS: 0.4, EYE: 1.0}
FACTORS = (0.0, 0.25, 0.5, 1.0)  # factors on the weights of heads and statistics that `try_network` compares
SURE = 3.0  # standard errors that the paired gain in accuracy of a factor has to reach; three factors are compared
SUREST, HALVINGS = 1e3, 60  # the largest inverse temperature in units of 1 / deviation, and steps of the bisection


class Referee(nn.Module):
    """z = Σ share · opinion / temperature, over the opinions that there are; P(task) is that of z.

    P(class | task) is that of z with the heads counted `within` times more.
    """

    compiled = ("forward",)
    purposes: ClassVar[dict[str, str]] = {"weights": "referee: how much each opinion counts"}

    weights: Tensor

    def __init__(self, opinions: tuple[str, ...], within: float = 0.0) -> None:
        super().__init__()
        self.opinions, self.within = opinions, within
        # Until it is fitted on held-out images, the eye decides where there is one: its logits never drift.
        self.trusted = EYE if EYE in opinions else HEADS
        self.register_buffer("weights", torch.tensor([float(name == self.trusted) for name in opinions]))

    def forward(self, opinions: Mapping[str, Tensor], tasks: Tensor) -> Tensor:
        """Logits (B, classes) of all opinions together; `tasks` is their `membership`."""
        parts = zip(self.weights, self.opinions, strict=True)
        weighed = torch.stack([weight * opinions[name].float() for weight, name in parts])
        logits = weighed.sum(dim=0)
        if not self.within:
            return logits
        raised = logits + self.within * weighed[self.opinions.index(HEADS)]
        evidence = per_task(logits, tasks) - per_task(raised, tasks)
        return raised + evidence[:, tasks.int().argmax(dim=0)]

    @torch.no_grad()
    def fit(self, opinions: Mapping[str, Tensor], labels: Tensor, first: int) -> None:
        """Fit the weights to opinions (n, classes) on held-out images of the newest task, from class `first` on.

        The newest head gives high logits to images of all tasks, which looks like accuracy on images of its own. So
        heads are calibrated on the classes of the newest task only, which they were trained to tell apart.
        """
        for index, name in enumerate(self.opinions):
            judged = first if name == HEADS else 0
            own = labels >= judged
            if opinions[name].shape[1] - judged > 1 and own.any():  # else there was nothing to tell apart
                told = opinions[name][own.to(opinions[name].device), judged:]
                self.weights[index] = SHARES[name] * inverse_temperature(told, labels[own] - judged)
        self.let_one_answer()

    @property
    def of_network(self) -> Tensor:
        """Mask of the network's opinions: all but the eye's."""
        return torch.tensor([name != EYE for name in self.opinions], device=self.weights.device)

    def trust_eye(self) -> None:
        """Set all weights but the eye's to zero."""
        self.weights[self.of_network] = 0.0
        self.let_one_answer()

    def let_one_answer(self) -> None:
        """If all weights are zero, use the opinion that was trusted before fitting."""
        if not self.weights.any():
            self.weights[self.opinions.index(self.trusted)] = 1.0

    @torch.no_grad()
    def try_network(self, opinions: Mapping[str, Tensor], labels: Tensor, tasks: Tensor) -> float:
        """Scale the weights of heads and statistics by the factor of `FACTORS` best on these images; returns it.

        Classes count the same, however many images they have. A gain that is not significant counts as none, and of
        equally good factors the smallest is taken.
        """
        weights, labels = self.weights.clone(), labels.to(self.weights.device)
        each, right = 1 / labels.cpu().bincount()[labels.cpu()].double(), list[Tensor]()  # on the CPU: float64
        for factor in FACTORS:
            self.weights.copy_(torch.where(self.of_network, factor * weights, weights))
            right.append((self(opinions, tasks).argmax(dim=1) == labels).cpu() * each)
        gains = [now - right[0] for now in right]
        sure = [float(gain.sum()) if gain.sum() >= SURE * gain.square().sum().sqrt() else 0.0 for gain in gains]
        best = FACTORS[sure.index(max(sure))]
        self.weights.copy_(torch.where(self.of_network, best * weights, weights))
        self.let_one_answer()
        return best


def membership(classes: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Which classes are of which task (tasks, classes), from the number of classes of each task."""
    task = torch.arange(len(classes)).repeat_interleave(torch.tensor(classes))
    return (task == torch.arange(len(classes))[:, None]).to(device)


def per_task(logits: Tensor, tasks: Tensor) -> Tensor:
    """log Σ exp z over the classes of each task (B, tasks)."""
    return logits[:, None].masked_fill(~tasks, -torch.inf).logsumexp(dim=2)


def inverse_temperature(logits: Tensor, labels: Tensor) -> float:
    """The maximum-likelihood β of softmax(β z); 0 for an opinion that is worse than chance.

    A pseudo-image, whose true class is the strongest wrong one, keeps β finite for an opinion without errors.
    """
    device = in_double(logits.device)
    z, labels = at(logits, device).double(), at(labels, device)
    z = z - z.mean(dim=1, keepdim=True)
    wrong = z.scatter(1, labels[:, None], -torch.inf).max(dim=1).values
    targets = z.gather(1, labels[:, None]).squeeze(1) + wrong / len(z)
    scale = z.std().clamp_min(1e-12)

    def slope(beta: float) -> float:
        """Derivative of the log-likelihood, which is concave in β."""
        expected = ((beta * z).softmax(dim=1) * z).sum(dim=1) * (1 + 1 / len(z))
        return float((targets - expected).sum())

    low, high = 0.0, SUREST / float(scale)
    if slope(low) <= 0:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low
