"""From a method and test images to predictions, and from predictions to one record per task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcab.data.tasks import Task, TaskImages
from gcab.evaluation.metrics import accuracy_row
from gcab.fast.inference import Predict, with_views
from gcab.methods.method import Method, parameter_count, pooled, state_bytes
from gcab.model.projectors import relative_drift
from gcab.parallel.ranks import shared_work
from gcab.records import AccuracyRow, Count, Drift, TaskRecord

BATCH = 500
DRIFT_IMAGES = 32  # per task: whole token grids are kept for these
EMBEDDED_IMAGES = 300  # of task 1, for the embedding figure


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a method on the test images; the method is never given these images."""

    method: Method
    test: TaskImages  # of all tasks, labels in order of arrival
    device: torch.device
    image_views: int = 1  # of each image, whose logits are averaged

    def images_of(self, task: Task) -> Tensor:
        labels = self.test.labels
        return self.test.images[(labels >= task.first) & (labels < task.first + task.classes)]

    def labels_of(self, task: Task) -> Tensor:
        labels = self.test.labels
        return labels[(labels >= task.first) & (labels < task.first + task.classes)]

    @torch.inference_mode()
    def apply(self, function: Any, images: Tensor) -> Tensor:
        """Map a function of normalised images over uint8 images, in batches that ranks share; results on the CPU."""
        ready = self.method.setting.normalise

        def on_host(part: Tensor) -> Tensor:
            result: Tensor = function(ready(part.to(self.device)))
            return result.float().cpu()

        return torch.cat(shared_work(on_host, images.split(BATCH)))

    def predict(self, tasks: tuple[Task, ...]) -> tuple[Tensor, Tensor]:
        """Logits over the classes seen and labels, for the test images of those tasks."""
        seen = self.seen(tasks)
        return self.decide(self.method.predictor(), self.test.images[seen]), self.test.labels[seen]

    def decide(self, predict: Predict, images: Tensor) -> Tensor:
        """Logits averaged over the views of each image."""
        return self.apply(with_views(predict, self.method.setting, self.image_views), images)

    def record(self, tasks: tuple[Task, ...], references: dict[int, Tensor]) -> tuple[TaskRecord, Tensor, Tensor]:
        """The "task" record after the last of `tasks`, with the logits and labels it was made from."""
        logits, labels = self.predict(tasks)
        classes = [task.classes for task in tasks]
        tag, taw, identified = accuracy_row(logits.numpy(), labels.numpy(), classes)
        record: TaskRecord = {
            "kind": "task",
            "task": Count(len(tasks)),
            "tag": tag,
            "taw": taw,
            "classes": [Count(number) for number in classes],
            "images": [len(self.labels_of(task)) for task in tasks],
            "task_identification": identified,
            "capacity": self.method.capacity(),
            "counted": self.method.counted(),
            "drift": [self.drift(tasks[index], reference) for index, reference in sorted(references.items())],
            "parameters": parameter_count(self.method),
            "bytes": self.stored_bytes(),
        }
        return record, logits, labels

    def parts(self, tasks: tuple[Task, ...]) -> dict[str, AccuracyRow]:
        """The accuracies of parts of the method alone."""
        labels = self.test.labels[self.seen(tasks)].numpy()
        return accuracies(self.decisions(tasks), labels, [task.classes for task in tasks])

    def decisions(self, tasks: tuple[Task, ...]) -> dict[str, np.ndarray[Any, Any]]:
        """The logits of parts of the method, for the test images of these tasks."""
        parts = self.method.parts()
        if not parts:
            return {}

        def side_by_side(images: Tensor) -> Tensor:
            features = self.method.features(images)
            assert features is not None
            return torch.stack([decide(images, features).float() for decide in parts.values()], dim=1)

        logits = self.decide(side_by_side, self.test.images[self.seen(tasks)]).numpy()
        return {name: logits[:, position] for position, name in enumerate(parts)}

    def seen(self, tasks: tuple[Task, ...]) -> Tensor:
        """Mask of the test images of these tasks and earlier ones."""
        return self.test.labels < tasks[-1].first + tasks[-1].classes

    def stored_bytes(self) -> dict[str, int]:
        images, prototypes = self.method.image_bytes(), self.method.prototype_bytes()
        return {"model": state_bytes(self.method) - images - prototypes, "images": images, "prototypes": prototypes}

    def reference(self, task: Task) -> Tensor | None:
        """Token features of a task's test images right after it was learned, to measure later drift against."""
        images = self.images_of(task)[:DRIFT_IMAGES]
        return self.apply(self.method.features, images) if self.has_features() else None

    def has_features(self) -> bool:
        return type(self.method).features is not Method.features

    def drift(self, task: Task, reference: Tensor) -> Drift:
        """Relative feature drift of a finished task's images, without and with compensation."""
        now = self.apply(self.method.features, self.images_of(task)[:DRIFT_IMAGES])
        with torch.inference_mode():
            mapped = self.method.compensate(now.to(self.device), task.index)
        return {
            "task": task.index + 1,
            "raw": relative_drift(now, reference),
            "compensated": None if mapped is None else relative_drift(mapped.float().cpu(), reference),
        }

    def embeddings(self, task: Task) -> dict[str, np.ndarray[Any, Any]] | None:
        """The decoder's feature of a task's test images, without and with compensation."""
        if type(self.method).embed is Method.embed:
            return None
        images, labels = self.images_of(task)[:EMBEDDED_IMAGES], self.labels_of(task)[:EMBEDDED_IMAGES]
        views = {
            name: self.apply(lambda batch, on=on: self.method.embed(batch, task.index, on), images).numpy()
            for name, on in (("raw", False), ("compensated", True))
        }
        return {"labels": labels.numpy(), **views}

    def probe(self, task: Task, train: TaskImages) -> float:
        """Nearest-class-mean accuracy on a task in the encoder's mean token: how useful its features are already."""
        known, labels = self.apply(self.pooled_features, train.images), train.labels - task.first
        means = torch.stack([known[labels == label].mean(dim=0) for label in range(task.classes)])
        asked = self.apply(self.pooled_features, self.images_of(task))
        nearest = torch.cdist(asked, means).argmin(dim=1)
        return float((nearest == self.labels_of(task) - task.first).double().mean() * 100)

    def pooled_features(self, images: Tensor) -> Tensor:
        features = self.method.features(images)
        assert features is not None
        return pooled(features)


def accuracies(
    decisions: Mapping[str, np.ndarray[Any, Any]], labels: np.ndarray[Any, Any], classes: Sequence[int]
) -> dict[str, AccuracyRow]:
    """A row of the accuracy matrices for each of several decisions about the same images."""
    rows = {name: accuracy_row(logits, labels, classes) for name, logits in decisions.items()}
    return {
        name: {"tag": tag, "taw": taw, "task_identification": identified}
        for name, (tag, taw, identified) in rows.items()
    }
