"""What joins the paper's decision: class statistics, an eye, and the referee that weighs all opinions.

Not in the paper. `Gcab` learns the network; here is all that it knows beside it, each part switched on by an option.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gcab.data.tasks import Part, Setting, Task, TaskImages
from gcab.fast.eye import FastEye
from gcab.fast.folded import FoldedDecoder
from gcab.methods.decision import Decision, Refereed, Weighted
from gcab.methods.imitation import imitations
from gcab.methods.method import Method
from gcab.model.discriminant import ExactDiscriminant
from gcab.model.eye import EyeClassifier, features_for
from gcab.model.frozen import Frozen
from gcab.model.network import GatedNetwork
from gcab.model.referee import EYE, HEADS, STATISTICS, Referee
from gcab.model.rows import drop_row
from gcab.model.statistics import ClassStatistics

if TYPE_CHECKING:
    from gcab.methods.gcab import GcabOptions


class Opinionated(Method):
    """A gated network whose heads decide alone, or together with class statistics and an eye."""

    options: "GcabOptions"
    network: GatedNetwork
    teacher: Frozen | None  # the encoder before the current task
    seen: list[ExactDiscriminant]  # what the eye will know after the current task, once it has looked

    def add_opinions(self, setting: Setting, options: "GcabOptions") -> None:
        """Make what the options ask for beside the network, which is there already."""
        self.statistics = ClassStatistics(self.network.encoder.grid, self.network.width, options.statistics_pooled)
        features = features_for(setting.image_size, options.eye)
        self.eye = EyeClassifier(FastEye(features, setting.mirrors, options.eye_side)) if options.eye else None
        self.referee = Referee(self.opinions()) if options.referee else None
        self.seen = []

    @property
    def judged(self) -> bool:
        return self.referee is not None

    @classmethod
    def additive(cls, options: "GcabOptions") -> bool:
        """Eye and statistics are sums; the network stands still if the projector of a task starts as the identity."""
        return options.tried and (options.drift != "pfr" or options.network.projector == "residual")

    @classmethod
    def sees(cls, options: "GcabOptions") -> bool:
        return options.eye > 0

    def learns(self, task: Task) -> bool:
        """One class alone gives heads nothing to tell apart."""
        return task.classes > 1 or not self.additive(self.options)

    def opinions(self) -> tuple[str, ...]:
        """Those that have a say in the decision."""
        present = {HEADS: True, STATISTICS: self.options.statistics, EYE: self.options.eye > 0}
        return tuple(name for name, there in present.items() if there)

    def grow_opinions(self, task: Task) -> None:
        if self.options.statistics:
            self.statistics.grow(task.classes)
        if self.eye is not None:
            self.eye.ridge.grow(task.classes)

    def first_sight(self, task: Task, data: TaskImages) -> None:  # noqa: ARG002
        if self.eye is not None:
            self.seen = [self.eye.taught(data.images, data.labels, self.watch)]

    def teach_opinions(self, task: Task, data: TaskImages) -> None:
        """Statistics move as the encoder did and learn the task's images; the eye knows what it has seen."""
        if self.options.statistics:
            now = self.pooled(self.network.encoder, data)
            if self.teacher is not None and self.options.compensation:
                self.statistics.transport(self.pooled(self.teacher, data), now)
            known = None if self.eye is None else self.eye.ridge.counts
            self.statistics.fit(now, data.labels.to(now.device), known)
        if self.eye is not None:
            if not self.seen:
                self.first_sight(task, data)
            self.eye.ridge = self.seen.pop()

    def last_sight(self, task: Task, held_out: TaskImages) -> None:
        """In lessons the eye learns held-out images, too, and they judge the network beside what it knows then."""
        if self.options.tried and self.eye is not None:
            self.eye.ridge = self.eye.taught(held_out.images, held_out.labels)
            self.weigh_opinions(task, held_out, learned=True)

    def left_out(self, data: TaskImages, trained: bool) -> Tensor | None:
        """Of images that the network was trained on, where the eye decides alone."""
        if not self.options.tried or self.eye is None or self.referee is None or (trained and self.heard):
            return None
        return self.referee(self.opinions_without(data)).cpu()

    @property
    def heard(self) -> bool:
        """Whether the network has a say beside the eye."""
        return self.referee is not None and bool(self.referee.weights[:-1].any())

    @property
    def unit(self) -> float:
        """The weight of the eye, whose scores mean the same in every task."""
        return float(self.referee.weights[-1]) or 1.0 if self.referee is not None and self.eye is not None else 1.0

    def opinions_without(self, data: TaskImages) -> dict[str, Tensor]:
        """What every part says about images that the eye has learned, each as if it alone had not been."""
        assert self.eye is not None, "which has learned them"
        said = self.opinions_on(data.images)
        return {**said, EYE: self.eye.left_out(data.images, data.labels).to(said[EYE].device)}

    def weigh_opinions(self, task: Task, held_out: TaskImages | None, learned: bool = False) -> None:
        """Fit the referee on images of the task that were not trained on; `learned`: the eye knows them."""
        if self.referee is None or len(self.opinions()) < 2:
            return
        if held_out is None:
            if self.options.tried and task.classes:
                self.referee.trust_eye()  # nobody can tell what the new classes would lose
            return
        opinions = self.opinions_without(held_out) if learned else self.opinions_on(held_out.images)
        classes = range(sum(self.task_classes()))
        self.referee.fit(opinions, held_out.labels, task.first)
        if self.options.tried:
            seen = set(held_out.labels.tolist())
            imitated, labels = imitations(self, held_out, [label for label in classes if label not in seen])
            heard = {name: torch.cat([said, imitated[name]]) for name, said in opinions.items()}
            self.referee.try_network(heard, torch.cat([held_out.labels, labels]))

    @torch.no_grad()
    def rival(self, data: TaskImages, older: int) -> float:
        """The logit that puts a new class level with the strongest of the `older` ones, on average over its images."""
        if not older or not len(data.labels):
            return 0.0
        heads = self.heads(FoldedDecoder(self.network))
        said = [heads(part)[:, :older].max(dim=1).values for part in self.normalised(data.images)]
        return float(torch.cat(said).mean())

    @torch.no_grad()
    def pooled(self, encoder: nn.Module, data: TaskImages) -> Tensor:
        """An encoder's pooled features of all images of a task."""
        return torch.cat([self.statistics.pool(encoder(part)) for part in self.normalised(data.images)])

    @torch.no_grad()
    def opinions_on(self, images: Tensor) -> dict[str, Tensor]:
        """What every part of the method says about images as bytes."""
        heard = {name: part for name, part in self.parts().items() if name in self.opinions()}
        said = [[part(some, self.features(some)) for part in heard.values()] for some in self.normalised(images)]
        return {name: torch.cat(logits) for name, logits in zip(heard, zip(*said, strict=True), strict=True)}

    def normalised(self, images: Tensor) -> Iterator[Tensor]:
        """Images as bytes in parts that the network can take."""
        return (self.setting.normalise(part.to(self.device)) for part in images.split(500))

    def features(self, images: Tensor) -> Tensor:
        return self.network.encoder(images)

    @abstractmethod
    def heads(self, decoder: Callable[[list[Tensor]], Tensor], compensate: bool = True) -> Decision:
        """The paper's decision."""

    def decision(self, decoder: Callable[[list[Tensor]], Tensor]) -> nn.Module:
        """All that the options have decide."""
        heads = self.heads(decoder)
        if self.referee is not None:
            statistics = self.statistics if self.options.statistics else None
            return Refereed(self.setting, heads, statistics, self.eye, self.referee)
        if self.options.statistics:
            tasks = self.task_classes() if self.options.statistics_meet == "probabilities" else None
            return Weighted(heads, self.statistics, self.options.statistics_weight, tasks)
        return heads

    def task_classes(self) -> Sequence[int]:
        """The number of classes of each task."""
        return self.network.classes

    def opinion_parts(self, heads: Decision) -> dict[str, Part]:
        """Each opinion alone; none where the heads are the only one."""
        found = dict[str, Part]()
        if len(self.opinions()) > 1:
            found[HEADS] = lambda _, features: heads.decide(features)
        if self.options.statistics:
            found[STATISTICS] = lambda _, features: self.statistics(features)
        if self.eye is not None:
            eye = self.eye
            found[EYE] = lambda images, _: eye(self.setting.pixels(images))
        return found

    @torch.no_grad()
    def forget(self, label: int, images: Tensor | None = None) -> tuple[str, ...]:
        left = ["the encoder and the gates, which were trained with its photos"]
        if self.eye is not None:
            self.eye.forget(label, images)
            if images is None:
                left.append(
                    "how its photos spread around their mean, which the eye sums over all classes (photos take it out)"
                )
        if self.options.statistics:
            drop_row(self.statistics, label, "means", "weight", "bias")
            left.append("its part in the covariance that the statistics of all classes share")
        if self.referee is not None:
            left.append("the weights of the opinions, measured on held-out photos")
        self.network.drop(label)
        return tuple(left)

    @torch.no_grad()
    def join(self, label: int, other: int) -> tuple[str, ...]:
        left = ["the encoder and the gates, which learned to tell the two apart"]
        counts = self.image_counts()
        if self.eye is not None:
            self.eye.ridge.join(label, other)
        if self.options.statistics:
            self.statistics.join(label, other, (1, 1) if counts is None else (counts[label], counts[other]))
        if self.network.join(label, other):
            left.append("the head, whose answer is the mean of its two answers")
        else:
            left.append("the heads: that of the first class answers, and never saw photos of the second")
        if self.referee is not None:
            left.append("the weights of the opinions, measured on held-out photos")
        return tuple(left)

    def expected(self) -> Tensor | None:
        """What the eye alone would do: of the network's opinions on old classes nothing that is stored can tell."""
        return None if self.eye is None else self.eye.ridge.expected()

    def verdict(self) -> str | None:
        if not self.options.tried or self.referee is None:
            return None
        if self.heard:
            return "network and eye decide together: that names most photos right, as far as can be told"
        return "the eye alone decides: nothing shows that the network would name more photos right"

    def image_counts(self) -> list[int] | None:
        return None if self.eye is None else self.eye.ridge.counts.tolist()

    def prototype_bytes(self) -> int:
        return self.statistics.nbytes() + (0 if self.eye is None else self.eye.ridge.nbytes())
