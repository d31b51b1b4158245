"""The referee: how much each opinion on an image counts.

Not in the paper. Heads, class statistics and the eye answer on scales of their own, and each is too sure or too unsure
in its own way. One temperature for each makes them honest; honest opinions add up. It is fitted on held-out images of
the newest task alone, so no image has to be kept.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from gcab.model.exact import at, in_double

HEADS, STATISTICS, EYE = "heads", "statistics", "eye"
# What honest opinions weigh (chosen on held-out images of CIFAR-100): heads and statistics see with the same encoder.
SHARES = {HEADS: 0.75, STATISTICS: 0.4, EYE: 1.0}
SAYS = (0.0, 0.25, 0.5, 1.0)  # of what the network's opinions weigh, as far as they are on trial
SURE = 3.0  # standard errors by which the network has to gain, image by image, to have a say; several shares are tried
SUREST, HALVINGS = 1e3, 60  # the largest inverse temperature in units of 1 / deviation, and steps of the search


class Referee(nn.Module):
    """z = Σ share · opinion / temperature, over the opinions that there are."""

    compiled = ("forward",)
    purposes: ClassVar[dict[str, str]] = {"weights": "referee: how much each opinion counts"}

    weights: Tensor

    def __init__(self, opinions: tuple[str, ...]) -> None:
        super().__init__()
        self.opinions = opinions
        # Until held-out images tell more, the eye decides where there is one: its answers never drift.
        self.trusted = EYE if EYE in opinions else HEADS
        self.register_buffer("weights", torch.tensor([float(name == self.trusted) for name in opinions]))

    def forward(self, opinions: Mapping[str, Tensor]) -> Tensor:
        """Logits (B, classes) of all opinions together."""
        parts = zip(self.weights, self.opinions, strict=True)
        return torch.stack([weight * opinions[name].float() for weight, name in parts]).sum(dim=0)

    @torch.no_grad()
    def fit(self, opinions: Mapping[str, Tensor], labels: Tensor, first: int) -> None:
        """From what each says about held-out images (n, classes) of the newest task, whose first class is given.

        The newest head claims images of all tasks, and of its own images that looks like knowledge. So heads are judged
        by what they were trained for, to tell the classes of their own task apart.
        """
        for index, name in enumerate(self.opinions):
            judged = first if name == HEADS else 0
            own = labels >= judged
            if opinions[name].shape[1] - judged > 1 and own.any():  # else nothing was told apart
                told = opinions[name][own.to(opinions[name].device), judged:]
                self.weights[index] = SHARES[name] * inverse_temperature(told, labels[own] - judged)
        self.let_one_answer()

    def trust_eye(self) -> None:
        """Hear the eye alone, as before there were held-out images."""
        self.weights.mul_(self.weights.new_tensor([float(name == EYE) for name in self.opinions]))
        self.let_one_answer()

    def let_one_answer(self) -> None:
        """Where no opinion is better than none, hear the one that was trusted from the start."""
        if not self.weights.any():
            self.weights[self.opinions.index(self.trusted)] = 1.0

    @torch.no_grad()
    def try_network(self, opinions: Mapping[str, Tensor], labels: Tensor) -> float:
        """Let heads and statistics have no more say beside the eye than helps with these images; returns their share.

        All classes count the same, however many images they have. A gain that chance would explain is none, and of
        shares that do as well the smallest is taken.
        """
        weights, labels = self.weights.clone(), labels.to(self.weights.device)
        network = torch.tensor([name != EYE for name in self.opinions], device=weights.device)
        each, right = 1 / labels.cpu().bincount()[labels.cpu()].double(), list[Tensor]()  # exact sums, on the host
        for say in SAYS:
            self.weights.copy_(torch.where(network, say * weights, weights))
            right.append((self(opinions).argmax(dim=1) == labels).cpu() * each)
        gains = [now - right[0] for now in right]
        sure = [float(gain.sum()) if gain.sum() >= SURE * gain.square().sum().sqrt() else 0.0 for gain in gains]
        best = SAYS[sure.index(max(sure))]
        self.weights.copy_(torch.where(network, best * weights, weights))
        self.let_one_answer()
        return best


def inverse_temperature(logits: Tensor, labels: Tensor) -> float:
    """The β that makes softmax(β z) most likely to name the labels; 0 for an opinion worse than none.

    One image more, whose true class is the strongest wrong one, keeps a faultless opinion from being infinitely sure.
    """
    device = in_double(logits.device)
    z, labels = at(logits, device).double(), at(labels, device)
    z = z - z.mean(dim=1, keepdim=True)
    wrong = z.scatter(1, labels[:, None], -torch.inf).max(dim=1).values
    targets = z.gather(1, labels[:, None]).squeeze(1) + wrong / len(z)
    scale = z.std().clamp_min(1e-12)

    def slope(beta: float) -> float:
        """Of the log-likelihood, which is concave in β."""
        expected = ((beta * z).softmax(dim=1) * z).sum(dim=1) * (1 + 1 / len(z))
        return float((targets - expected).sum())

    low, high = 0.0, SUREST / float(scale)
    if slope(low) <= 0:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low
