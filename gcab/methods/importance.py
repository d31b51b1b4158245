"""Base of methods that penalise changes of weights by their importance to earlier tasks: EWC and MAS."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.modes import evaluating
from gcab.methods.per_image import LARGEST, chunks
from gcab.methods.regularised import Regularised, RegularisedOptions


@dataclass(frozen=True)
class ImportanceOptions(RegularisedOptions):
    """How the importances of tasks are merged, and on how many images they are measured."""

    merge: Literal["average", "sum"] = "average"  # αΩ + (1-α)Ω_task (FACIL), or γΩ + Ω_task (online EWC, MAS)
    alpha: float = 0.5  # FACIL
    gamma: float = 1.0  # nothing is forgotten: MAS's own sum, and Mammoth's online EWC
    images: int = 0  # of each task that importance is measured on; 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "gamma"):
            if not 0 <= getattr(self, name) <= 1:
                raise GcabError(f"options.{name} is {getattr(self, name)}: give a share from 0 to 1.")
        if self.images < 0:
            raise GcabError(f"options.images is {self.images}: give a number of images, or 0 for all.")


class MasterWeights:
    """The float32 master weights: modules of a recorded step hold copies of lower precision, which never equal θ*."""

    def __init__(self, weights: Iterable[nn.Parameter]) -> None:
        self.weights = list(weights)

    def flat(self) -> Tensor:
        return torch.cat([weight.flatten() for weight in self.weights])


class Importance(Regularised):
    """L = CE + λ/2 Σ Ω_i (θ_i - θ*_i)² over all weights but those of heads, which belong to their tasks."""

    purposes: ClassVar[dict[str, str]] = {
        "importance": "how much each weight matters to finished tasks",
        "anchor": "the weights as the last task left them",
    }
    importance: Tensor
    anchor: Tensor
    options: ImportanceOptions

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.master_weights = MasterWeights(self.shared().values())
        size = len(self.master_weights.flat())
        self.register_buffer("importance", torch.zeros(size))  # Ω
        self.register_buffer("anchor", torch.zeros(size))  # θ*

    def shared(self) -> dict[str, nn.Parameter]:
        """The weights that all tasks use, by their names in the network."""
        return {name: weight for name, weight in self.network.named_parameters() if not name.startswith("head.")}

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        terms = {"classification": self.labelled(self.network(batch.images), batch.labels)}
        if self.held:
            moved = (self.master_weights.flat() - self.anchor).square()
            terms["importance"] = self.options.weight / 2 * (self.importance * moved).sum()
        return terms

    @torch.no_grad()
    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        chosen = torch.randperm(len(data.labels))[: self.options.images or None]
        found = self.measured(data.images[chosen])
        alpha, gamma = self.options.alpha, self.options.gamma
        old, new = (alpha, 1 - alpha) if self.options.merge == "average" else (gamma, 1.0)
        self.importance.mul_(old).add_(found, alpha=new)
        self.anchor.copy_(self.master_weights.flat())

    def preview_end(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        """Nothing, as importances do not change predictions."""

    def measured(self, images: Tensor, largest: int = LARGEST) -> Tensor:
        """Ω_task: the mean over uint8 images of the importance that each gives every weight."""
        total = torch.zeros_like(self.importance)
        with evaluating(self.network):
            for part in self.normalised(images, largest):
                total += self.of_images(part).sum(dim=0)
        return total / len(images)

    def normalised(self, images: Tensor, largest: int) -> Iterator[Tensor]:
        for part in chunks(len(images), self.shared(), largest):
            self.watch(part.start / len(images))
            yield self.setting.normalise(images[part].to(self.anchor.device))

    @abstractmethod
    def of_images(self, images: Tensor) -> Tensor:
        """The importance that each image gives every weight: (B, weights), non-negative."""

    def prototype_bytes(self) -> int:
        return super().prototype_bytes() + self.importance.nbytes + self.anchor.nbytes
