"""A model as the server holds it: loaded once, its constants folded once, never changed afterwards."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gcab.classifier.calibration import FLAGGED
from gcab.classifier.model import Classifier
from gcab.classifier.prediction import Precision
from gcab.errors import GcabError
from gcab.fast.inference import fast_predictor
from gcab.methods.method import state_bytes
from gcab.parallel.devices import suitable_threads
from gcab.report.model_page import estimate_now, warnings_of
from gcab.serve.attention import attention_maps
from gcab.sizes import sides
from gcab.version import VERSION

SIZES = (1, 2, 4, 8, 16, 32)  # of batches: up to what a server gathers by default


@dataclass(frozen=True)
class Inference:
    """How the network runs, for every generation alike."""

    device: str = "auto"
    precision: Precision = "float32"
    compiled: bool = False
    views: int = 1  # of each image, as `with_views` averages them


@dataclass(frozen=True)
class Scores:
    """The outputs for one image."""

    probabilities: Tensor  # (classes,)
    unknown: float | None  # None: too few held-out images to say
    maps: Tensor | None  # (passes, N) in 0..1, where they were asked for and the method has them


class ServedModel:
    """One generation; to change the model, the server takes another object."""

    def __init__(self, classifier: Classifier, inference: Inference) -> None:
        self.method, self.device = classifier.method, classifier.device
        self.image_size, self.calibration = classifier.image_size, classifier.calibration
        self.generation, self.digest = classifier.generation or 0, classifier.digest or ""
        self.classes = [str(label) for label in classifier.classes]
        self.tasks = [task.index + 1 for task in classifier.tasks for _ in task.names]  # of each class, from 1
        self.taught, self.method_name, self.precision = classifier.taught, classifier.config.method, inference.precision
        encoder = self.method.setting.encoder
        self.features_per_image = encoder.tokens(self.image_size) * encoder.width
        bfloat16 = inference.precision == "bfloat16"
        self.predictor = fast_predictor(self.method, bfloat16, inference.compiled, inference.views)

    @classmethod
    def load(cls, folder: Path, inference: Inference) -> "ServedModel":
        """The current model of a folder, warmed up on blank images."""
        model = cls(Classifier.load(folder, device=inference.device), inference)
        blank = torch.zeros(SIZES[-1], 3, *sides(model.image_size), dtype=torch.uint8)
        try:
            # Compiling and recording take their time now, not in the first request; a GPU records each size by itself.
            for count in SIZES if model.device.type == "cuda" else SIZES[:2]:
                model.scores(blank[:count], [True] * count)
        except Exception as problem:
            if inference.compiled:
                raise GcabError(
                    "the network cannot be compiled on this machine: serve it without --compile."
                ) from problem
            raise
        return model

    def scores(self, pixels: Tensor, attention: Sequence[bool]) -> list[Scores]:
        """Scores of uint8 images (n, 3, H, W); maps only on request, as they need the readable passes."""
        with torch.inference_mode(), suitable_threads(self.device, len(pixels) * self.features_per_image):
            images = self.method.setting.normalise(pixels.to(self.device))
            logits = self.predictor(images).cpu()
            asked = torch.tensor([index for index, wanted in enumerate(attention) if wanted], dtype=torch.int64)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
                maps = attention_maps(self.method, images[asked.to(self.device)]) if len(asked) else None
        probabilities = self.calibration.probabilities(logits)
        scores = self.calibration.unknown(logits).tolist()
        unknown = scores if self.calibration.tells_unknown else [None] * len(pixels)
        own_maps = {} if maps is None else dict(zip(asked.tolist(), maps.cpu(), strict=True))
        return [Scores(probabilities[row], unknown[row], own_maps.get(row)) for row in range(len(pixels))]

    def answer(self, file: str, scores: Scores, top: int) -> dict[str, Any]:
        """One image's part of the answer to POST /predict."""
        best = scores.probabilities.topk(min(top, len(self.classes)))
        listed = [
            {"class": self.classes[index], "task": self.tasks[index], "probability": round(probability, 6)}
            for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        mass = torch.zeros(len(self.taught)).index_add(0, torch.tensor(self.tasks) - 1, scores.probabilities)
        answer: dict[str, Any] = {
            "file": file,
            "top": listed,
            "unknown": None if scores.unknown is None else round(scores.unknown, 6),
            "flagged": scores.unknown is not None and scores.unknown >= FLAGGED,
            "tasks": [{"task": task, "probability": round(p, 6)} for task, p in enumerate(mass.tolist(), start=1)],
            "answered_by": self.tasks[int(best.indices[0])],
        }
        if scores.maps is not None:
            _, columns = self.method.setting.encoder.grid(self.image_size)
            answer["attention"] = {
                "side": columns,
                "maps": [[round(v, 4) for v in row] for row in scores.maps.tolist()],
            }
        return answer

    def describe(self) -> dict[str, Any]:
        """The part of GET /model that does not change while this model is served."""
        names: dict[int, list[str]] = {task: [] for task in range(1, len(self.taught) + 1)}
        for name, task in zip(self.classes, self.tasks, strict=True):
            names[task].append(name)
        return {
            "version": VERSION,
            "method": self.method_name,
            "generation": self.generation,
            "digest": self.digest,
            "image_size": self.image_size,
            "classes": [{"name": name, "task": task} for name, task in zip(self.classes, self.tasks, strict=True)],
            "tasks": [
                {
                    "index": task,
                    "classes": names[task],
                    "again": list(taught.again),
                    "accuracy": taught.accuracy,
                    "held_out": taught.held_out or 0,
                    "now": taught.now,
                }
                for task, taught in enumerate(self.taught, start=1)
            ],
            "expected_accuracy": self.expected_accuracy(),
            "warnings": warnings_of(self.facts(), None),
            "verdict": self.method.verdict(),
            "capacity": self.method.capacity(),
            "bytes": state_bytes(self.method),
            "stores_images": self.method.image_bytes() > 0,
        }

    def facts(self) -> dict[str, Any]:
        """The facts that a report's warnings are based on."""
        tasks = [{"index": task, **asdict(taught)} for task, taught in enumerate(self.taught, start=1)]
        return {"tasks": tasks, "calibration": {"images": self.calibration.images}}

    def expected_accuracy(self) -> float | None:
        """Expected accuracy on new photos of all classes, in per cent; None where there is no estimate.

        It is an estimate, as the photos of earlier tasks no longer exist.
        """
        expected = estimate_now(self.facts())
        return None if expected is None else round(expected, 6)
