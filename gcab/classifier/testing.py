"""Evaluation of a model on labelled photos: accuracy, confusion and calibration."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gcab.classifier.calibration import FLAGGED, expected_calibration_error, reliability
from gcab.classifier.housekeeping import place_of
from gcab.classifier.model import Classifier
from gcab.classifier.photos import pixels_of
from gcab.classifier.unsure import SHOWN, least_sure
from gcab.errors import GcabError
from gcab.sizes import Size

BATCH = 64


@dataclass
class Seen:
    """The predictions for the photos that could be read."""

    files: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)  # -1 for a class that the model does not know
    logits: list[Tensor] = field(default_factory=list)
    parts: dict[str, list[Tensor]] = field(default_factory=dict)  # predictions of each part of the method alone


def measure(
    model: Classifier, files: Sequence[Path], names: Sequence[str], watch: Callable[[float], None] = lambda _: None
) -> dict[str, Any]:
    """All results on labelled photos, as JSON writes them; photos of unknown classes measure `unknown`."""
    places = {name: place_of(name, model.classes) for name in set(names)}
    if all(place is None for place in places.values()):
        known = ", ".join([*map(str, model.classes[:5]), *["..."] * (len(model.classes) > 5)])
        raise GcabError(f"none of these photos is of a class that the model knows ({known}): check the folders.")
    seen, skipped = Seen(), list[str]()
    for done, part in batches(files, names, model.image_size, skipped):
        look(model, part, places, seen)
        watch(done / len(files))
    logits, labels = torch.cat(seen.logits), torch.tensor(seen.labels)
    own = labels >= 0
    if not own.any():
        raise GcabError("no photo of a class that the model knows can be read: check the files.")
    strange = Counter(name for name in names if places[name] is None)
    return {
        **known_photos(model, logits[own], labels[own]),
        "parts": {name: share(torch.cat(said)[own], labels[own]) for name, said in seen.parts.items()},
        "least_sure": unsure(model, seen, logits, own),
        "unknown": unknown_photos(model, logits, own),
        "strange": dict(sorted(strange.items())),
        "skipped": skipped,
    }


Part = list[tuple[Path, str, Tensor]]


def batches(files: Sequence[Path], names: Sequence[str], size: Size, skipped: list[str]) -> Iterator[tuple[int, Part]]:
    """Batches of decoded photos, with the number done; an error message for each unreadable one goes to `skipped`."""
    read = partial(pixels_of, size=size)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for start in range(0, len(files), BATCH):
            some = files[start : start + BATCH]
            found = list(zip(some, names[start : start + BATCH], pool.map(read, some), strict=True))
            skipped += [image for _, _, image in found if isinstance(image, str)]
            if part := [(file, name, image) for file, name, image in found if isinstance(image, Tensor)]:
                yield start + len(some), part


@torch.inference_mode()
def look(model: Classifier, part: Part, places: dict[str, int | None], seen: Seen) -> None:
    """Predict some photos with the model and with each of its parts."""
    pixels, method = torch.stack([image for _, _, image in part]), model.method
    seen.files += [str(file) for file, _, _ in part]
    seen.labels += [-1 if (place := places[name]) is None else place for _, name, _ in part]
    seen.logits.append(model.logits(pixels))
    ready = method.setting.normalise(pixels.to(model.device))
    features = method.features(ready)
    if features is not None:
        for name, decide in method.parts().items():
            seen.parts.setdefault(name, []).append(decide(ready, features).argmax(dim=1).cpu())


def known_photos(model: Classifier, logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Accuracy in all, by lesson and by class, the confusion, and the calibration."""
    probabilities = model.calibration.probabilities(logits)
    confidence, answers = probabilities.max(dim=1)
    names = [str(name) for name in model.classes]
    counts = torch.zeros(len(names), len(names), dtype=torch.int64)
    counts.index_put_((labels, answers), torch.ones_like(labels), accumulate=True)
    return {
        "photos": len(labels),
        "accuracy": share(answers, labels),
        "confidence": round(100 * float(confidence.mean()), 2),
        "names": names,
        "confusion": counts.tolist(),
        "classes": [per_class(name, counts, place) for place, name in enumerate(names)],
        "lessons": [share(answers, labels, task.labels) for task in model.tasks],
        "calibration_error": expected_calibration_error(probabilities, labels),
        "curve": [part._asdict() for part in reliability(probabilities, labels)],
    }


def per_class(name: str, counts: Tensor, place: int) -> dict[str, Any]:
    """A class's accuracy, and the class that it is most often confused with."""
    row = counts[place]
    wrong = row.clone()
    wrong[place] = 0
    other = int(wrong.argmax())
    return {
        "name": name,
        "photos": int(row.sum()),
        "accuracy": round(100 * int(row[place]) / int(row.sum()), 2) if row.any() else None,
        "named": int(counts[:, place].sum()),
        "taken_for": other if wrong.any() else None,
    }


def share(answers: Tensor, labels: Tensor, among: range | None = None) -> float | None:
    """Accuracy in per cent, on all photos or those of some classes; None where there are none."""
    chosen = torch.ones_like(labels, dtype=torch.bool)
    if among is not None:
        chosen = (labels >= among.start) & (labels < among.stop)
    return round(100 * float((answers == labels)[chosen].double().mean()), 2) if chosen.any() else None


def unsure(model: Classifier, seen: Seen, logits: Tensor, own: Tensor) -> list[dict[str, Any]]:
    """The photos whose class the model thinks least likely."""
    places = own.nonzero().flatten().tolist()
    labels = torch.tensor([seen.labels[place] for place in places])
    found = least_sure(model, [seen.files[place] for place in places], logits[own], labels, 2 * SHOWN)
    return [vars(photo) for photo in found]


def unknown_photos(model: Classifier, logits: Tensor, own: Tensor) -> dict[str, Any] | None:
    """How well `unknown` detects photos of other classes; None where there are none, or the model has no score."""
    if own.all() or not model.calibration.tells_unknown:
        return None
    score = model.calibration.unknown(logits)
    return {
        "photos": int((~own).sum()),
        "auroc": auroc(score[~own], score[own]),
        "flagged": 100 * float((score[~own] >= FLAGGED).double().mean()),
        "known_flagged": 100 * float((score[own] >= FLAGGED).double().mean()),
    }


def auroc(higher: Tensor, lower: Tensor) -> float:
    """Area under the ROC curve: how often a value of the first is above one of the second, ties by half."""
    ordered = lower.double().sort().values
    below = torch.searchsorted(ordered, higher.double())
    up_to = torch.searchsorted(ordered, higher.double(), right=True)
    return float((below + up_to).double().mean() / (2 * len(lower)))
