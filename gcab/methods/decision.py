"""From images to logits: by the heads alone, as in the paper, or together with class statistics and eye."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gcab.data.tasks import Setting
from gcab.fast.graphs import on_side_stream
from gcab.model.eye import EyeClassifier
from gcab.model.network import GatedNetwork
from gcab.model.referee import EYE, HEADS, STATISTICS, Referee
from gcab.model.statistics import ClassStatistics


class Decision(nn.Module):
    """From images to logits, as in the paper: encode, undo the drift, decode for every task."""

    def __init__(self, network: GatedNetwork, decoder: Callable[[list[Tensor]], Tensor], compensate: bool) -> None:
        super().__init__()
        self.encoder, self.cascade, self.decoder, self.passes = network.encoder, network.cascade, decoder, network.tasks
        self.compensate = compensate and len(self.cascade.projectors) > 0

    def forward(self, images: Tensor) -> Tensor:
        return self.decide(self.encoder(images))

    def decide(self, features: Tensor) -> Tensor:
        """Logits from the encoder's features."""
        return self.decoder(self.cascade(features) if self.compensate else [features] * self.passes)


class Refereed(nn.Module):
    """The logits of heads, statistics and eye, weighed by the referee."""

    compiled = ("see",)
    tasks: Tensor  # the membership of the classes

    def __init__(
        self,
        setting: Setting,
        heads: Decision,
        statistics: ClassStatistics | None,
        eye: EyeClassifier | None,
        referee: Referee,
        tasks: Tensor,
    ) -> None:
        super().__init__()
        self.register_buffer("tasks", tasks, persistent=False)
        self.setting, self.heads, self.statistics, self.eye, self.referee = setting, heads, statistics, eye, referee

    def forward(self, images: Tensor) -> Tensor:
        seen = on_side_stream(images.device, partial(self.see, self.eye, images)) if self.eye is not None else None
        features = self.heads.encoder(images)
        opinions = {HEADS: self.heads.decide(features)}
        if self.statistics is not None:
            opinions[STATISTICS] = self.statistics(features)
        if seen is not None:
            opinions[EYE] = seen()
        return self.referee(opinions, self.tasks)

    def see(self, eye: EyeClassifier, images: Tensor) -> Tensor:
        """Logits of the eye, which takes pixel values from 0 to 255."""
        return eye(self.setting.pixels(images))


class Weighted(nn.Module):
    """The logits of heads and statistics, added with a fixed weight, as in models before 0.2.0."""

    def __init__(
        self, heads: Decision, statistics: ClassStatistics, weight: float, tasks: Sequence[int] | None
    ) -> None:
        super().__init__()
        self.heads, self.statistics, self.weight = heads, statistics, weight
        self.tasks = None if tasks is None else tuple(tasks)  # classes of each; None: heads are not normalised

    def forward(self, images: Tensor) -> Tensor:
        features = self.heads.encoder(images)
        logits = self.heads.decide(features)
        heads = logits.float() if self.tasks is None else within_tasks(logits, self.tasks)
        return self.weight * self.statistics(features) + heads


def within_tasks(logits: Tensor, classes: Sequence[int]) -> Tensor:
    """log P(class | task): log-softmax within every head, so that heads are not compared with each other."""
    heads = logits.float().split(list(classes), dim=1)
    return torch.cat([head.log_softmax(dim=1) for head in heads], dim=1)
