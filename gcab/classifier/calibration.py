"""From logits to probabilities that can be believed, and to a score for "none of these".

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
SHRINKAGE = 2.0  # weight of (log T - log T before)², beside the sum of the images' losses
PATIENCE = 2.0  # spreads by which the largest logit may be lower than is usual before it counts
LONG_PATIENCE = 4.0  # the same for classes of earlier tasks, which drift has made weaker
ALLOWANCE = 0.25  # spreads by which answers for those may be less certain
FLAGGED = 0.95  # stranger than this share of held-out known images: perhaps none of the classes
FEWEST = 20  # held-out images, below which that cannot be told
ENOUGH = 50  # images for a distribution of familiarity that needs no support by an earlier one
KNOTS = 256  # of that distribution, as stored
WIDE_BINS, BIN_IMAGES = 15, 10

Scale = tuple[float, float]  # the median of held-out images, and how far below it their lowest 5 % begin


class Bin(NamedTuple):
    """Images of about the same confidence."""

    images: int
    confidence: float  # their mean, 0..1
    accuracy: float  # the share of them named right, 0..1


@dataclass(frozen=True)
class Calibration:
    """How far a model's confidence is to be trusted; as made without arguments: as it is, and nothing is unknown."""

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
        overall: float | None = None,
    ) -> "Calibration":
        """Calibrate on held-out images of the newest task, whose first class is given; those of earlier tasks are gone.

        `overall` is the accuracy to expect over all classes, 0..1 (see `forecast`): where earlier tasks have lost more
        than the newest task's images can tell, the mean confidence must not be clearly above it.

        `previous` is where the temperature is drawn to, and its distribution of familiarity fills up what the new
        images lack to 50. It gets no more weight than that: it was measured among fewer classes, so it is too sure.
        """
        before = previous or cls()
        z, labels = _rows(logits), labels.to("cpu", torch.int64)
        count = len(z)
        if labels.shape != (count,) or not (count and labels.min() >= 0 and labels.max() < z.shape[1]):
            raise GcabError(f"calibration got {count} rows of {z.shape[1]} logits: give each row one of their labels.")
        temperature = fitted_temperature(z, labels, before.temperature)
        if overall is not None:
            temperature = max(temperature, temperature_for(z, at_most(overall, count)))
        scaled = cls(
            temperature,
            _scale(certainty(z, temperature)),
            _scale(strength(logits)),
            newest=newest,
            alike=True,
        )
        borrowed = min(before.images, max(0, ENOUGH - count))
        probabilities = cross_fitted(z, labels, before.temperature)
        return replace(
            scaled,
            familiarity=_knots(scaled.familiar(logits), before.familiarity, borrowed),
            images=count + borrowed,
            expected_calibration_error=cross_fitted_error(z, labels, before.temperature),
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
        """(n,): how certain the decision is, unless even its strongest class is far weaker than it should be.

        Things like the known classes give themselves away by uncertainty, things like nothing known only by weak
        logits; either is counted in the spreads of held-out images. How certain the model should be of classes of
        earlier tasks no image is left to tell: about as certain as of the newest, though they may be weaker.
        """
        (middle, spread), (usual, width) = self.certainty, self.strength
        certain = (certainty(_rows(logits), self.temperature) - middle) / spread
        strong = (strength(logits) - usual) / width
        return familiarity(certain, strong, logits.argmax(dim=1).cpu() >= self.newest, self.alike)

    def outdated(self) -> "Calibration":
        """What is left when a task was learned without held-out images: a temperature, and nothing measured."""
        return Calibration(self.temperature)

    def to_dict(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Calibration":
        """What `to_dict` gave, checked."""
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
    """How familiar images look by how certain and how strong the answers are, in spreads of held-out images."""
    of_earlier = strong + LONG_PATIENCE
    if alike:
        of_earlier = torch.minimum(certain + ALLOWANCE, of_earlier)
    return torch.where(of_newest, torch.minimum(certain, strong + PATIENCE), of_earlier)


def at_most(share: float, images: int) -> float:
    """Two standard errors above a share that so many images tell, one right and one wrong image added."""
    smoothed = (share * images + 1) / (images + 2)
    return smoothed + 2 * math.sqrt(smoothed * (1 - smoothed) / images)


def temperature_for(z: Tensor, confidence: float) -> float:
    """The T at which the mean confidence is no more than this, as far as there is one."""
    low, high = math.log(COLDEST), math.log(HOTTEST)
    for _ in range(40):  # the mean confidence falls as T rises
        middle = (low + high) / 2
        if float((z / math.exp(middle)).softmax(dim=1).max(dim=1).values.mean()) > confidence:
            low = middle
        else:
            high = middle
    return math.exp(high)


def certainty(z: Tensor, temperature: float) -> Tensor:
    """-log H, (n,): near-zero entropies stay apart, where probabilities would all round to 1."""
    log_p = (z / temperature).log_softmax(dim=1)
    return -(-(log_p.exp() * log_p).sum(dim=1)).clamp_min(1e-200).log()


def strength(logits: Tensor) -> Tensor:
    """max z, (n,)."""
    return logits.detach().to("cpu", torch.float64).max(dim=1).values


def fitted_temperature(z: Tensor, labels: Tensor, before: float = 1.0) -> float:
    """The T of least negative log-likelihood, drawn towards the one before, most where there are few images.

    One image more, whose true class is the strongest wrong one, keeps faultless data from asking for T = 0: n images
    without a fault then give a confidence of about 1 - 1/n.
    """
    true = z.gather(1, labels[:, None])
    wrong = z.scatter(1, labels[:, None], -torch.inf).max(dim=1, keepdim=True).values
    targets = torch.cat([true, torch.where(wrong.isfinite(), wrong, true)], dim=1)  # (n, 2)
    weights = torch.tensor([1.0, 1 / len(z)], dtype=z.dtype)

    def loss(log_t: float) -> float:
        t = math.exp(log_t)
        surprise = (z / t).logsumexp(dim=1, keepdim=True) - targets / t
        return float((surprise * weights).sum()) + SHRINKAGE * (log_t - math.log(before)) ** 2

    low, high = math.log(COLDEST), math.log(HOTTEST)
    best = 0.0
    for _ in range(4):  # a grid around the best of the grid before: no starting point, no slope, no failure
        grid = np.linspace(low, high, 17)
        best = float(min(grid, key=loss))
        step = float(grid[1] - grid[0])
        low, high = max(low, best - step), min(high, best + step)
    return math.exp(best)


def cross_fitted_error(z: Tensor, labels: Tensor, before: float = 1.0) -> float | None:
    """The calibration error of `cross_fitted` probabilities; None if the images are few."""
    probabilities = cross_fitted(z, labels, before)
    return None if probabilities is None else expected_calibration_error(probabilities, labels)


def cross_fitted(z: Tensor, labels: Tensor, before: float = 1.0) -> Tensor | None:
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
    """Logits (n, classes) relative to their row's largest, finite, in double precision on the host."""
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
    """The distribution of the new images' familiarity and of as many earlier ones as are borrowed."""
    values = np.concatenate([scores.numpy(), np.array(earlier, dtype=np.float64)])
    weights = np.concatenate([np.ones(len(scores)), np.full(len(earlier), borrowed / max(1, len(earlier)))])
    levels = (np.arange(KNOTS) + 0.5) / KNOTS
    return tuple(np.quantile(values, levels, weights=weights, method="inverted_cdf").tolist())


def _pair(values: Any) -> Scale:
    middle, spread = map(float, values)
    return middle, spread
