"""Diagnostics of task identification: each head's logits on images of its own task and of others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcab.evaluation.metrics import task_of_class

Array = NDArray[Any]


@dataclass(frozen=True)
class HeadReport:
    """One head: its largest logit (mean, standard deviation), and the images it wins, in per cent."""

    own: tuple[float, float]  # for images of its task
    others: tuple[float, float]  # for all other images
    auroc: float  # of telling these from those
    found: float  # of its own images
    won: float  # of all images


@dataclass(frozen=True)
class Rivals:
    """A true class against the other heads, on average over the images."""

    positive: float  # other heads with a logit above 0
    largest: float  # the largest logit of theirs
    true: float  # logit of the true class
    lead: float  # of that over the other classes of its own head


@dataclass(frozen=True)
class Errors:
    """Rates of errors, in per cent of all images but for the last."""

    task: float  # the class answered is of another task
    within: float  # it is of the right task, but another class
    told: float  # of the images with the wrong task: right, had the task been told


def heads(logits: Array, labels: Array, classes: Sequence[int]) -> list[HeadReport]:
    """Every head's report, from logits (n, classes) over tasks of so many classes."""
    best, mine = best_of_heads(logits, classes), task_of_class(classes)[labels]
    winner = best.argmax(axis=1)
    return [
        HeadReport(
            spread(best[mine == head, head]),
            spread(best[mine != head, head]),
            auroc(best[mine == head, head], best[mine != head, head]),
            float(np.mean(winner[mine == head] == head) * 100),
            float(np.mean(winner == head) * 100),
        )
        for head in range(len(classes))
    ]


def rivals(logits: Array, labels: Array, classes: Sequence[int]) -> Rivals:
    """How strongly other heads answer, for two tasks or more; a head with one class has no lead within it."""
    owner, everyone = task_of_class(classes), np.arange(len(labels))
    mine = owner[labels]
    others = best_of_heads(logits, classes)
    others[everyone, mine] = -np.inf
    true = logits[everyone, labels]
    beside = np.where(owner == mine[:, None], logits, -np.inf)
    beside[everyone, labels] = -np.inf
    lead = (true - beside.max(axis=1))[np.isfinite(beside.max(axis=1))]
    return Rivals(
        float(np.mean((others > 0).sum(axis=1))),
        float(np.mean(others.max(axis=1))),
        float(np.mean(true)),
        float(np.mean(lead)) if len(lead) else 0.0,
    )


def errors(logits: Array, labels: Array, classes: Sequence[int]) -> Errors:
    """A decision's mistakes: those of the task, and the rest."""
    owner, answer = task_of_class(classes), logits.argmax(axis=1)
    mine = owner[labels]
    told = np.where(owner == mine[:, None], logits, -np.inf).argmax(axis=1) == labels
    elsewhere = owner[answer] != mine
    return Errors(
        float(np.mean(elsewhere) * 100),
        float(np.mean(~elsewhere & (answer != labels)) * 100),
        float(np.mean(told[elsewhere]) * 100) if elsewhere.any() else 0.0,
    )


def either(one: Array, other: Array, labels: Array, classes: Sequence[int]) -> tuple[float, float]:
    """Per cent of the images whose task both decisions find, and of those whose task at least one finds."""
    owner = task_of_class(classes)
    first, second = (owner[logits.argmax(axis=1)] == owner[labels] for logits in (one, other))
    return float(np.mean(first & second) * 100), float(np.mean(first | second) * 100)


def best_of_heads(logits: Array, classes: Sequence[int]) -> Array:
    """The largest logit of each head, (n, heads)."""
    return np.stack([part.max(axis=1) for part in np.split(logits, np.cumsum(classes)[:-1], axis=1)], axis=1)


def spread(values: Array) -> tuple[float, float]:
    return float(values.mean()), float(values.std())


def auroc(positive: Array, negative: Array) -> float:
    """Area under the ROC curve: the probability that a positive value exceeds a negative one; ties count half."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left") + np.searchsorted(ordered, positive, "right")
    return float(below.mean() / (2 * len(negative)))
