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
    """`overview` with the history, the confusion that the sums let expect, and the bytes of every part."""
    folder = ModelFolder(path)
    model = Classifier.load(path, "cpu")
    return {
        **overview(path),
        "history": history(folder.description()),
        "confusion": estimated_confusion(model),
        "parts": parts_of(model),
    }


def estimated_confusion(model: Classifier) -> list[list[float]] | None:
    """What the eye's sums say that new photos of each class are taken for, in per cent; None without an eye."""
    ridges = [part for part in model.method.modules() if isinstance(part, ExactDiscriminant)]
    found: list[list[float]] | None = (100 * ridges[0].confusion()).tolist() if ridges else None
    return found


def parts_of(model: Classifier) -> list[dict[str, Any]]:
    """The bytes of each part, and the opinion it is asked for."""
    sizes: dict[tuple[str, str], int] = {}
    for name, value in model.method.state_dict().items():
        known = next((told for begin, told in PARTS.items() if f"{name}.".startswith(f"{begin}.")), ("other", ""))
        sizes[known] = sizes.get(known, 0) + value.nbytes
    return [{"part": part, "bytes": size, "knows": knows} for (part, knows), size in sizes.items()]
