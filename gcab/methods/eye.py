"""The eye alone: a fixed way to see and an exact ridge regression; nothing is trained and nothing drifts.

Not in the paper. It learns in seconds what training on everything at once would give it, and is what every method
that stores no image has to beat.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from gcab.methods.method import Batch, Method, Progress, Setting, Task, TaskImages
from gcab.model.eye import EyeClassifier, features_for


@dataclass(frozen=True)
class EyeOptions:
    """How much it sees, and how its sums are kept."""

    features: int = 4096  # a quarter for images of at most 16 pixels; the sums take 2 bytes for each pair of them
    forgettable: bool = False  # sums of every class by itself, so that one can be forgotten without its images


class Eye(Method):
    """Sums of features, of their products and of the images of each class are all it keeps."""

    Options: ClassVar[type[Any]] = EyeOptions
    summary = "a fixed eye with exact ridge regression, untrained: the baseline to beat; stores no image"
    trains = False
    options: EyeOptions

    def __init__(self, setting: Setting, options: EyeOptions) -> None:
        super().__init__(setting, options)
        features = features_for(setting.image_size, options.features)
        self.eye = EyeClassifier(features, setting.mirrors, options.forgettable)

    def grow(self, task: Task) -> None:
        self.eye.ridge.grow(task.classes)

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        return {}

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        self.eye.ridge = self.eye.taught(data.images, data.labels, self.watch)

    def predict(self, images: Tensor) -> Tensor:
        return self.eye(self.setting.pixels(images))

    def prototype_bytes(self) -> int:
        return self.eye.ridge.nbytes()
