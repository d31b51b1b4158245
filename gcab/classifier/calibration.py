"""Calibration: from logits to probabilities, and to a score for "none of these".

Everything is fitted on held-out images, which the network was not trained on, and on learned ones each of which was
left out (`Method.left_out`). Both are called held out here.
Legend: z = an image's logits, T = temperature, H = entropy of softmax(z / T).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gcab.errors import GcabError

COLDEST, HOTTEST = 0.01, 1000.0  # the range of T
FARTHEST = 1e4  # a logit further than this below its row's largest counts as this far: minus infinity is allowed
LEAST_DOUBT = 1e-15  # the smallest 1 - confidence that differs from 0
SPREAD = 0.7  # deviation of the prior on log T around the previous one
PATIENCE = 2.0  # spreads by which the largest logit may be below its median before it counts
LONG_PATIENCE = 4.0  # the same for classes of earlier tasks, which drift has made weaker
ALLOWANCE = 0.25  # spreads by which answers for those may be less certain
FLAGGED = 0.95  # images less familiar than this share of held-out known ones are perhaps of none of the classes
FEWEST = 20  # held-out images, below which that cannot be estimated
ENOUGH = 50  # images for a distribution of familiarity that needs no support by an earlier one
KNOTS = 256  # quantiles of that distribution that are stored
WIDE_BINS, BIN_IMAGES = 15, 10

Scale = tuple[float, float]  # the median of held-out images, and how far below it their lowest 5 % begin


class Bin(NamedTuple):
    """Images of about the same confidence."""

    images: int
    confidence: float  # their mean, 0..1
    accuracy: float  # the share of them named right, 0..1


@dataclass(frozen=True)
class Calibration:
    """A model's temperature and its scores of familiarity; by default T = 1, and nothing is unknown."""

    temperature: float = 1.0
    certainty: Scale = (0.0, 1.0)  # of -log H
    strength: Scale = (0.0, 1.0)  # of max z
    familiarity: tuple[float, ...] = ()  # of held-out known images: knots of equal weight, ascending
    images: int = 0  # held-out and left-out images this rests on
    newest: int = 0  # the first of the classes that those images are of
    expected_calibration_error: float | None = None  # 0..1, of the newest task's held-out images; None: too few
    alike: bool = False  # certainty counts for classes of earlier tasks, too; false in models of 0.1.0
    curve: tuple[Bin, ...] = ()  # of the same images as the error

    @classmethod
    def fit(
        cls,
        logits: Tensor,
        labels: Tensor,
        previous: "Calibration | None" = None,
        newest: int = 0,
        steady: bool = True,
    ) -> "Calibration":
        """Calibrate on held-out images of the newest task, whose first class is given; those of earlier tasks are gone.

        `previous` is the prior of the temperature, and its distribution of familiarity fills up what the new images
        lack to 50. That gets no more weight: it was measured among fewer classes, so it is overconfident.
        `steady`: logits have the scale that they had before, as those of sums do; training a network changes its own.
        """
        before = previous or cls()
        z, labels = _rows(logits), labels.to("cpu", torch.int64)
        count = len(z)
        if labels.shape != (count,) or not (count and labels.min() >= 0 and labels.max() < z.shape[1]):
            raise GcabError(f"calibration got {count} rows of {z.shape[1]} logits: give each row one of their labels.")
        start = before if steady else before.outdated()
        temperature = fitted_temperature(z, labels, start)
        scaled = cls(
            temperature,
            _scale(certainty(z, temperature)),
            _scale(strength(logits)),
            newest=newest,
            alike=True,
        )
        borrowed = min(before.images, max(0, ENOUGH - count))
        probabilities = cross_fitted(z, labels, start)
        error = None if probabilities is None else expected_calibration_error(probabilities, labels)
        return replace(
            scaled,
            familiarity=_knots(scaled.familiar(logits), before.familiarity, borrowed),
            images=count + borrowed,
            expected_calibration_error=error,
            curve=() if probabilities is None else tuple(reliability(probabilities, labels)),
        )

    def probabilities(self, logits: Tensor) -> Tensor:
        """softmax(z / T): (n, classes)."""
        return (_rows(logits) / self.temperature).softmax(dim=1).float()

    @property
    def tells_unknown(self) -> bool:
        """Whether there were held-out images enough for `unknown` to mean anything."""
        return bool(self.familiarity) and self.images >= FEWEST

    def unknown(self, logits: Tensor) -> Tensor:
        """(n,) in 0..1: the share of held-out known images that look more familiar; 0 where those were too few."""
        score = self.familiar(logits)
        if not self.tells_unknown:
            return torch.zeros(len(score))
        knots = torch.tensor(self.familiarity, dtype=torch.float64)
        return 1 - torch.searchsorted(knots, score, right=True).float() / len(knots)

    def familiar(self, logits: Tensor) -> Tensor:
        """(n,): the certainty of the prediction, or the strength of its largest logit where that is unusually low.

        Unknown classes that resemble known ones have high entropy, all others only weak logits; both are in units
        of their spreads on held-out images. No image of earlier tasks is left to measure these on: predictions of their
        classes should be about as certain as of the newest, though their logits may be weaker.
        """
        (middle, spread), (usual, width) = self.certainty, self.strength
        certain = (certainty(_rows(logits), self.temperature) - middle) / spread
        strong = (strength(logits) - usual) / width
        return familiarity(certain, strong, logits.argmax(dim=1).cpu() >= self.newest, self.alike)

    def outdated(self) -> "Calibration":
        """The calibration after a task that was learned without held-out images: only the temperature stays."""
        return Calibration(self.temperature)

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Calibration":
        """Inverse of `to_dict`, which checks the fields."""
        try:
            made = cls(
                float(fields["temperature"]),
                _pair(fields["certainty"]),
                _pair(fields["strength"]),
                tuple(map(float, fields["familiarity"])),
                int(fields["images"]),
                int(fields.get("newest", 0)),  # models of version 0.1.0 have none
                None if fields["expected_calibration_error"] is None else float(fields["expected_calibration_error"]),
                bool(fields.get("alike", False)),
                tuple(Bin(int(part[0]), float(part[1]), float(part[2])) for part in fields.get("curve", ())),
            )
            bins = [value for part in made.curve for value in part]
            numbers = (made.temperature, *made.certainty, *made.strength, *made.familiarity, *bins)
            sound = all(map(math.isfinite, numbers)) and min(made.temperature, made.certainty[1], made.strength[1]) > 0
            if not sound or min(made.images, made.newest) < 0 or list(made.familiarity) != sorted(made.familiarity):
                raise ValueError
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
            raise GcabError("the model's calibration is damaged: restore the model from a copy.") from None
        return made


def familiarity(certain: Tensor, strong: Tensor, of_newest: Tensor, alike: bool) -> Tensor:
    """Familiarity from certainty and strength, both in units of their spreads on held-out images."""
    of_earlier = strong + LONG_PATIENCE
    if alike:
        of_earlier = torch.minimum(certain + ALLOWANCE, of_earlier)
    return torch.where(of_newest, torch.minimum(certain, strong + PATIENCE), of_earlier)


def certainty(z: Tensor, temperature: float) -> Tensor:
    """-log H, (n,): near-zero entropies stay apart, where probabilities would all round to 1."""
    log_p = (z / temperature).log_softmax(dim=1)
    return -(-(log_p.exp() * log_p).sum(dim=1)).clamp_min(1e-200).log()


def strength(logits: Tensor) -> Tensor:
    """max z, (n,)."""
    return logits.detach().to("cpu", torch.float64).max(dim=1).values


def fitted_temperature(z: Tensor, labels: Tensor, before: Calibration | None = None) -> float:
    """Geometric mean of the T fitted to these images and the previous T, weighted by the images behind each.

    Lessons differ mostly in how hard their classes are, and T has to suit the classes of all.
    """
    before = before or Calibration()
    own = len(z) / (len(z) + before.images)
    asked = honest_temperature(z, labels, before.temperature)
    return float(asked**own * before.temperature ** (1 - own))


def honest_temperature(z: Tensor, labels: Tensor, before: float) -> float:
    """Maximum-a-posteriori T: the number of correct images is binomial, with the mean confidence as its probability.

    All classes count the same, however many images they have, as their frequencies in use are unknown. The likelihood
    of each image's own label is not used: images of a class with few images are missed by far, and would dominate.
    One pseudo-image that is correct and one that is not keep images without errors from T = 0.
    """
    weights = 1 / labels.bincount()[labels].double()
    weights /= weights.sum()
    images = 1 / float(weights.square().sum())  # effective number of images
    right = float(weights[z.argmax(dim=1) == labels].sum()) * images

    def loss(log_t: float) -> float:
        confidence = (z / math.exp(log_t)).softmax(dim=1).max(dim=1).values
        doubt = float((weights @ (1 - confidence)).clamp(LEAST_DOUBT, 1 - LEAST_DOUBT))
        unlikely = -(right + 1) * math.log1p(-doubt) - (images - right + 1) * math.log(doubt)
        return unlikely + ((log_t - math.log(before)) / SPREAD) ** 2 / 2

    low, high = math.log(COLDEST), math.log(HOTTEST)
    best = 0.0
    for points in (65, 17, 17):  # ever finer grids around the best: no start, no gradient, no failure
        grid = np.linspace(low, high, points)
        best = float(min(grid, key=loss))
        step = float(grid[1] - grid[0])
        low, high = max(low, best - step), min(high, best + step)
    return math.exp(best)


def cross_fitted(z: Tensor, labels: Tensor, before: Calibration | None = None) -> Tensor | None:
    """Probabilities of each half of the images under the other half's temperature; None if they are few."""
    if len(z) < 2 * BIN_IMAGES:
        return None
    order = labels.argsort(stable=True)  # every class goes to both halves
    probabilities = torch.zeros_like(z)
    for measured, fitted in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        probabilities[measured] = (z[measured] / fitted_temperature(z[fitted], labels[fitted], before)).softmax(dim=1)
    return probabilities


def expected_calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    """Mean |confidence - accuracy| over bins of confidence, weighted by their images, in 0..1."""
    bins = reliability(probabilities, labels)
    return sum(part.images * abs(part.accuracy - part.confidence) for part in bins) / len(labels)


def reliability(probabilities: Tensor, labels: Tensor) -> list[Bin]:
    """The calibration curve, from the least to the most confident.

    15 bins of equal width from 150 images on; below that bins of equal count, at least ten images in each.
    """
    confidence, predicted = probabilities.double().max(dim=1)
    right, count = (predicted == labels).double(), len(labels)
    if count >= WIDE_BINS * BIN_IMAGES:
        bins = (confidence * WIDE_BINS).ceil().long().clamp(1, WIDE_BINS) - 1
    else:
        bins = torch.empty(count, dtype=torch.int64)
        bins[confidence.argsort(stable=True)] = torch.arange(count) * max(1, count // BIN_IMAGES) // count
    members = [bins == number for number in range(WIDE_BINS)]
    return [
        Bin(int(chosen.sum()), float(confidence[chosen].mean()), float(right[chosen].mean()))
        for chosen in members
        if chosen.any()
    ]


def _rows(logits: Tensor) -> Tensor:
    """Logits (n, classes) relative to their row's largest, finite, in double precision on the CPU."""
    z = logits.detach().to("cpu", torch.float64)
    if z.ndim != 2 or z.shape[1] == 0:
        raise GcabError(f"logits have the shape {tuple(z.shape)}: calibration needs (images, classes).")
    z = (z - z.max(dim=1, keepdim=True).values).clamp_min(-FARTHEST)
    if not z.isfinite().all():
        raise GcabError("the model's logits are not all numbers: it is damaged or its training failed.")
    return z


def _scale(values: Tensor) -> Scale:
    low, middle = np.quantile(values.numpy(), (0.05, 0.5)).tolist()
    return middle, max(middle - low, 1e-6)


def _knots(scores: Tensor, earlier: tuple[float, ...], borrowed: int) -> tuple[float, ...]:
    """Quantiles of the familiarity of the new images, with earlier ones that weigh as much as `borrowed` images."""
    values = np.concatenate([scores.numpy(), np.array(earlier, dtype=np.float64)])
    weights = np.concatenate([np.ones(len(scores)), np.full(len(earlier), borrowed / max(1, len(earlier)))])
    levels = (np.arange(KNOTS) + 0.5) / KNOTS
    return tuple(np.quantile(values, levels, weights=weights, method="inverted_cdf").tolist())


def _pair(values: Any) -> Scale:
    middle, spread = map(float, values)
    return middle, spread
