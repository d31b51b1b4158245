"""Fine-tuning: train on each task as if there had been no other (the ablation's first row)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from gcab.data.tasks import Batch, Progress, Setting, Task
from gcab.fast.encoders import make_encoder
from gcab.methods.card import Card
from gcab.methods.method import Loss, Method, binary_cross_entropy, cross_entropy
from gcab.methods.space import OneOf, space
from gcab.model.network import PlainNetwork


@dataclass(frozen=True)
class FinetuneOptions:
    """The published rows use softmax cross-entropy, the paper's own method binary cross-entropy."""

    loss: Loss = "bce"


class Finetune(Method):
    """No defence against forgetting: the lower bound."""

    Options: ClassVar[type[Any]] = FinetuneOptions
    summary = "plain training on each new task, nothing against forgetting (lower bound); stores no image"
    card: ClassVar[Card] = Card()
    search_space = space(loss=OneOf("bce", "ce"))

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.network = PlainNetwork(make_encoder(setting.encoder, setting.image_size, setting.weights))

    def grow(self, task: Task) -> None:
        self.network.grow(task.classes)

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        return {"classification": self.classification(self.network(batch.images), batch.labels)}

    def classification(self, logits: Tensor, labels: Tensor, first: int = 0) -> Tensor:
        """The loss that the options ask for, over the classes from `first` on."""
        kind = cross_entropy if self.options.loss == "ce" else binary_cross_entropy
        return kind(logits[:, first:], labels, first)

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def features(self, images: Tensor) -> Tensor:
        return self.network.encoder(images)

    def embed(self, images: Tensor, task: int, compensate: bool) -> Tensor:  # noqa: ARG002
        return self.network.feature(images)
