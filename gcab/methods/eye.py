"""The eye alone: a fixed feature extractor and an exact linear discriminant; nothing is trained and nothing drifts.

Not in the paper. It learns in seconds exactly what joint training would give it, and is the baseline of every method
that stores no image.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.errors import GcabError
from gcab.fast.eye import FastEye
from gcab.methods.card import Card, Compass
from gcab.methods.method import Method
from gcab.methods.space import NOTHING
from gcab.model.eye import SIDE, EyeClassifier, features_for

FEW = 10  # images that are timed to estimate the duration of `end_task`


@dataclass(frozen=True)
class EyeOptions:
    """How much it sees, and how its sums are kept."""

    features: int = 4096  # a quarter for images of at most 16 pixels; the sums take 2 bytes for each pair of them
    side: int = SIDE  # pixels at which images are seen; 64: twice as sharp, five times as long to look
    tones: int = 0  # features of each channel that tell how bright it is, beside those of the filters
    forgettable: bool = False  # sums of every class by itself, so that one can be forgotten without its images


class Eye(Method):
    """Keeps sufficient statistics only: sums of features and of their products, and the images of each class."""

    Options: ClassVar[type[Any]] = EyeOptions
    summary = "a fixed eye with an exact linear discriminant, untrained: the baseline to beat; stores no image"
    card: ClassVar[Card] = Card(
        stores="sums over images: of features, of their products, of each class",
        compass=Compass(federated="unsupervised", online="supervised"),
    )
    search_space = NOTHING
    trains = False
    few: ClassVar[int] = FEW
    options: Any

    def __init__(self, setting: Setting, options: EyeOptions) -> None:
        super().__init__(setting, options)
        features = features_for(setting.image_size, options.features)
        self.eye = EyeClassifier(FastEye(features, setting.mirrors, options.side, options.tones), options.forgettable)

    @classmethod
    def additive(cls, options: Any) -> bool:  # noqa: ARG003
        return True

    @classmethod
    def sees(cls, options: Any) -> bool:  # noqa: ARG003
        return True

    def grow(self, task: Task) -> None:
        self.eye.ridge.grow(task.classes)

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        return {}

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        self.eye.ridge = self.eye.taught(data.images, data.labels, self.watch)

    def last_sight(self, task: Task, held_out: TaskImages) -> None:
        self.end_task(task, held_out)

    def left_out(self, data: TaskImages, trained: bool) -> Tensor:  # noqa: ARG002
        return self.eye.left_out(data.images, data.labels)

    def forget(self, label: int, images: Tensor | None = None) -> tuple[str, ...]:
        if images is None and not self.options.forgettable:
            raise GcabError(
                "this model keeps the sums of all classes together: give the photos of the class, to take them out "
                "(models with options.forgettable need none)."
            )
        self.eye.forget(label, images)
        return ()

    def join(self, label: int, other: int) -> tuple[str, ...]:
        self.eye.ridge.join(label, other)
        return ()

    def merge(self, other: Method, places: Sequence[int]) -> None:
        if not isinstance(other, Eye) or type(other) is not type(self):
            super().merge(other, places)
            return
        options = [field.name for field in fields(self.options)]
        for what, own, its, flag in (
            *((f"options.{name}", getattr(self.options, name), getattr(other.options, name), "") for name in options),
            ("the size of images", self.setting.image_size, other.setting.image_size, "--size"),
            ("augment.flip", self.setting.mirrors, other.setting.mirrors, ""),
        ):
            if own != its:
                raise GcabError(
                    f"these models do not add up: {what} is {own} in the first and {its} in the second. Teach one of "
                    f"them anew, as the other was ({flag or f'--set {what}=...'})."
                )
        ridge = self.eye.ridge
        ridge.add(other.eye.ridge.in_places(places, len(ridge.counts)))
        ridge.solve()

    def expected(self) -> Tensor | None:
        return self.eye.ridge.expected()

    def image_counts(self) -> list[int]:
        return self.eye.ridge.counts.tolist()

    def ending_seconds(self, images: Tensor) -> float:
        self.eye.seen(images[:1])  # which starts an encoder up: that happens once, and is over then
        start, some = time.perf_counter(), images[-self.few :]
        self.eye.seen(some)
        return (time.perf_counter() - start) * len(images) / len(some)

    def predict(self, images: Tensor) -> Tensor:
        return self.eye(self.setting.pixels(images))

    def prototype_bytes(self) -> int:
        return self.eye.ridge.nbytes()
