"""Photos that a model is least sure of: shown after a lesson, stored nowhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from gcab.classifier.model import Classifier

SHOWN = 5


@dataclass(frozen=True)
class Unsure:
    """A photo, its class, and what the model takes it for."""

    file: str
    label: str
    probability: float  # of its class
    guess: str


def least_sure(
    model: Classifier, files: Sequence[str], logits: Tensor, labels: Tensor, shown: int = SHOWN
) -> tuple[Unsure, ...]:
    """Photos whose own class has the least probability, without those that are predicted with more than a half."""
    probabilities = model.calibration.probabilities(logits)
    own = probabilities.gather(1, labels[:, None])[:, 0]
    names = [str(name) for name in model.classes]
    return tuple(
        Unsure(files[place], names[int(labels[place])], round(float(own[place]), 6), names[guess])
        for place in own.argsort(stable=True).tolist()[:shown]
        if (guess := int(probabilities[place].argmax())) != int(labels[place]) or own[place] < 0.5
    )
