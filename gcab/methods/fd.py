"""Feature distillation: on new images, features stay near the teacher's (Hou et al. 2019, as the paper cites it).

The paper's row has it under the gates (`--method gcab --options.drift distillation`); this is the same without gates.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from torch import Tensor

from gcab.data.tasks import Batch, Progress, Setting, Task
from gcab.methods.card import Card, Compass
from gcab.methods.regularised import Distilled, RegularisedOptions
from gcab.methods.space import Near, space
from gcab.model.network import PlainNetwork
from gcab.model.projectors import Distance, drift_distance


@dataclass(frozen=True)
class FdOptions(RegularisedOptions):
    """The distance of Hou et al., who compare the final feature; the paper compares the encoder's tokens."""

    weight: float = 50.0  # chosen on held-out digits; Hou: 5
    scaled: bool = True  # λ is times √(old classes / new classes)
    distance: Distance = "cosine"  # l2, rms: as in the paper's authors' code
    feature: Literal["tokens", "final"] = "tokens"  # final: what the heads read


class Fd(Distilled):
    """L = CE(B) + λ distance(b(x; Ψ^t), b(x; Ψ^{t-1})); nothing is stored between tasks."""

    Options: ClassVar[type[Any]] = FdOptions
    summary = "feature distillation: features of new images stay where they were, no gates; stores no image"
    card: ClassVar[Card] = Card(
        source="Hou et al., CVPR 2019, its distillation alone",
        differs="compares the encoder's tokens, as the paper does; no exemplars, cosine classifier or margins",
        compass=Compass(task_agnostic="supervised"),
    )
    search_space = space(weight=Near(10))
    options: FdOptions

    def __init__(self, setting: Setting, options: FdOptions) -> None:
        super().__init__(setting, options)
        self.factor = 1.0  # on λ; `grow` sets it

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.factor = (task.first / task.classes) ** 0.5 if self.options.scaled else 1.0

    def batch(self, batch: Batch) -> Batch:
        """Add the teacher's features."""
        if self.teacher is None:
            return batch
        network = cast(PlainNetwork, self.teacher.module)
        features = network.encoder(batch.images)
        if self.options.feature == "final":
            features = network.decode(features)
        return replace(batch, targets={"features": features})

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        network = self.network
        tokens = network.encoder(batch.images)
        final = network.decode(tokens)
        terms = {"classification": self.labelled(network.head(final), batch.labels)}
        if batch.targets:
            features = final if self.options.feature == "final" else tokens
            moved = drift_distance(self.options.distance, features, batch.targets["features"])
            terms["distillation"] = self.options.weight * self.factor * moved
        return terms
