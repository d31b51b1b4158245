"""A frozen encoder with random weights and class statistics of its features: the baseline for what training is worth.

Not in the paper. Its weights are random numbers from the seed, so nothing drifts and nothing is forgotten; a method
that trains an encoder and stores no image has to beat it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.fast.encoders import make_encoder
from gcab.methods.card import Card, Compass
from gcab.methods.method import Method
from gcab.methods.space import NOTHING
from gcab.model.statistics import ClassStatistics


@dataclass(frozen=True)
class UntrainedOptions:
    """Nothing to choose."""


class Untrained(Method):
    """Learns a mean per class and one scatter matrix only."""

    Options: ClassVar[type[Any]] = UntrainedOptions
    summary = "an encoder of random weights with class statistics, untrained: a baseline to beat; stores no image"
    card: ClassVar[Card] = Card(
        stores="a mean per class, one scatter",
        compass=Compass(generative="supervised"),
    )
    search_space = NOTHING
    trains = False

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        grid, width = setting.encoder.grid(setting.image_size), setting.encoder.width
        self.encoder = make_encoder(setting.encoder, setting.image_size, setting.weights).requires_grad_(False)
        self.statistics = ClassStatistics(grid, width, pooled=True)

    def grow(self, task: Task) -> None:
        self.statistics.grow(task.classes)

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        return {}

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        device = next(self.encoder.parameters()).device
        pooled = self.setting.outputs(lambda part: self.statistics.pool(self.features(part)), data.images, device)
        self.statistics.fit(pooled, data.labels.to(device))

    def predict(self, images: Tensor) -> Tensor:
        return self.statistics(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        return self.encoder(images)

    def prototype_bytes(self) -> int:
        return self.statistics.nbytes()
