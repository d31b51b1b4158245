"""All that a model can tell about itself, for a page about it."""

from pathlib import Path
from typing import Any

from gcab.classifier.history import history
from gcab.classifier.model import Classifier
from gcab.classifier.model_folder import ModelFolder
from gcab.classifier.overview import overview
from gcab.model.discriminant import ExactDiscriminant
from gcab.model.referee import EYE, HEADS, STATISTICS

# Where the tensors of a method begin -> what they are, and the opinion that rests on them.
PARTS = {
    "network.encoder": ("encoder", ""),
    "network": ("gates, decoder and heads", HEADS),
    "statistics": ("class statistics", STATISTICS),
    "eye": ("eye", EYE),
    "referee": ("referee", ""),
}


def facts_of(path: str | Path) -> dict[str, Any]:
    """`overview` with the history, the expected confusion matrix, and the bytes of every part."""
    folder = ModelFolder(path)
    model = Classifier.load(path, "cpu")
    confusion = estimated_confusion(model)
    return {
        **overview(path),
        "history": history(folder.description()),
        "confusion": confusion,
        "parts": parts_of(model, confusion),
    }


def estimated_confusion(model: Classifier) -> list[list[float]] | None:
    """The confusion matrix on new photos that the eye's sums predict, in per cent; None where they cannot."""
    ridges = [part for part in model.method.modules() if isinstance(part, ExactDiscriminant)]
    shares = ridges[0].confusion() if ridges else None
    return None if shares is None else [[100 * share for share in row] for row in shares.tolist()]


def parts_of(model: Classifier, confusion: list[list[float]] | None) -> list[dict[str, Any]]:
    """The bytes of each part, the opinion that rests on it, and the expected accuracy of that alone, in per cent."""
    right = [row[place] for place, row in enumerate(confusion or ())]
    alone = {EYE: sum(right) / len(right)} if right else {}
    sizes: dict[tuple[str, str], int] = {}
    for name, value in model.method.state_dict().items():
        known = next((told for begin, told in PARTS.items() if f"{name}.".startswith(f"{begin}.")), ("other", ""))
        sizes[known] = sizes.get(known, 0) + value.nbytes
    return [
        {"part": part, "bytes": size, "knows": knows, "alone": alone.get(knows)}
        for (part, knows), size in sizes.items()
    ]
