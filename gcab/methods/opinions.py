"""Opinions beside the paper's heads: class statistics, an eye, and the referee that weighs them all.

Not in the paper. `Gcab` trains the network; here is the rest, each part switched on by an option.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from gcab.data.tasks import Part, Setting, Task, TaskImages
from gcab.fast.eye import FastEye
from gcab.fast.folded import FoldedDecoder
from gcab.methods.decision import Decision, Refereed, Weighted
from gcab.methods.method import Method
from gcab.methods.pseudo_features import pseudo_opinions
from gcab.model.discriminant import ExactDiscriminant
from gcab.model.eye import EyeClassifier, features_for
from gcab.model.frozen import Frozen
from gcab.model.network import GatedNetwork
from gcab.model.referee import EYE, HEADS, STATISTICS, Referee, membership
from gcab.model.rows import drop_row
from gcab.model.statistics import ClassStatistics

if TYPE_CHECKING:
    from gcab.methods.gcab import GcabOptions


class Opinionated(Method):
    """A gated network whose heads decide alone, or together with class statistics and an eye."""

    sums: ClassVar[str] = "the eye and the class statistics"
    options: "GcabOptions"
    network: GatedNetwork
    teacher: Frozen | None  # the encoder before the current task
    # The eye's after the task, from `first_sight` to `end_task`, else empty: in a list, which `state_dict` leaves out
    seen: list[ExactDiscriminant]

    def add_opinions(self, setting: Setting, options: "GcabOptions") -> None:
        """Create statistics, eye and referee as the options ask for them; the network exists already."""
        self.statistics = ClassStatistics(self.network.encoder.grid, self.network.width, options.statistics_pooled)
        features = features_for(setting.image_size, options.eye)
        eye = FastEye(features, setting.mirrors, options.eye_side, options.eye_tones) if options.eye else None
        self.eye = None if eye is None else EyeClassifier(eye)
        self.referee = Referee(self.opinions(), options.heads_within) if options.referee else None
        self.seen = []

    @property
    def judged(self) -> bool:
        return self.referee is not None

    @classmethod
    def additive(cls, options: "GcabOptions") -> bool:
        """Eye and statistics are sums; an untrained task leaves the network alone if its projector is the identity."""
        return options.tried and (options.drift != "pfr" or options.network.projector == "residual")

    @classmethod
    def sees(cls, options: "GcabOptions") -> bool:
        return options.eye > 0

    def learns(self, task: Task) -> bool:
        """A lesson of one class has nothing to train, as its head has nothing to tell apart."""
        return task.classes > 1 or not self.additive(self.options)

    def opinions(self) -> tuple[str, ...]:
        """The names of the opinions that the options switch on."""
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
        """Transport the statistics along the drift, then add the task's images to statistics and eye."""
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
        """Add held-out images to the eye, and fit the referee again with its leave-one-out logits of them."""
        if self.options.tried and self.eye is not None:
            self.eye.ridge = self.eye.taught(held_out.images, held_out.labels)
            self.weigh_opinions(task, held_out, learned=True)

    def left_out(self, data: TaskImages, trained: bool) -> Tensor | None:
        """None for images that the network was trained on, unless the eye decides alone."""
        if not self.options.tried or self.eye is None or self.referee is None or (trained and self.heard):
            return None
        return self.referee(self.opinions_without(data), self.membership()).cpu()

    @property
    def heard(self) -> bool:
        """Whether the network's opinions have any weight beside the eye's."""
        return self.referee is not None and bool(self.referee.weights[self.referee.of_network].any())

    @property
    def unit(self) -> float:
        """The weight of the eye, whose scores mean the same in every task."""
        if self.referee is None or self.eye is None:
            return 1.0
        return float(self.referee.weights[~self.referee.of_network]) or 1.0

    def opinions_without(self, data: TaskImages) -> dict[str, Tensor]:
        """The opinions on images that the eye has learned, with its leave-one-out logits."""
        assert self.eye is not None, "which has learned them"
        said = self.opinions_on(data.images)
        return {**said, EYE: self.eye.left_out(data.images, data.labels).to(said[EYE].device)}

    def weigh_opinions(self, task: Task, held_out: TaskImages | None, learned: bool = False) -> None:
        """Fit the referee on images of the task that were not trained on; `learned`: the eye knows them."""
        if self.referee is None or len(self.opinions()) < 2:
            return
        if held_out is None:
            if self.options.tried and task.classes:
                self.referee.trust_eye()  # the network cannot be judged on the new classes
            return
        opinions = self.opinions_without(held_out) if learned else self.opinions_on(held_out.images)
        classes = range(sum(self.task_classes()))
        self.referee.fit(opinions, held_out.labels, task.first)
        if self.options.tried:
            seen = set(held_out.labels.tolist())
            pseudo, labels = pseudo_opinions(self, held_out, [label for label in classes if label not in seen])
            heard = {name: torch.cat([said, pseudo[name]]) for name, said in opinions.items()}
            self.referee.try_network(heard, torch.cat([held_out.labels, labels]), self.membership())

    def rival(self, data: TaskImages, older: int) -> float:
        """The largest logit of the `older` classes, averaged over the images of a new class."""
        if not older or not len(data.labels):
            return 0.0
        heads = self.heads(FoldedDecoder(self.network))
        said = self.setting.outputs(lambda part: heads(part)[:, :older].max(dim=1).values, data.images, self.device)
        return float(said.mean())

    def pooled(self, encoder: nn.Module, data: TaskImages) -> Tensor:
        """An encoder's pooled features of all images of a task."""
        return self.setting.outputs(lambda part: self.statistics.pool(encoder(part)), data.images, self.device)

    @torch.no_grad()
    def opinions_on(self, images: Tensor) -> dict[str, Tensor]:
        """The opinions on uint8 images, by name."""
        heard = {name: part for name, part in self.parts().items() if name in self.opinions()}
        chunks = self.setting.chunks(images, self.device)
        said = [[part(some, self.features(some)) for part in heard.values()] for some in chunks]
        return {name: torch.cat(logits) for name, logits in zip(heard, zip(*said, strict=True), strict=True)}

    def features(self, images: Tensor) -> Tensor:
        return self.network.encoder(images)

    @abstractmethod
    def heads(self, decoder: Callable[[list[Tensor]], Tensor], compensate: bool = True) -> Decision:
        """The paper's decision, by the heads alone."""

    def decision(self, decoder: Callable[[list[Tensor]], Tensor]) -> nn.Module:
        """The decision by all opinions that the options switch on."""
        heads = self.heads(decoder)
        if self.referee is not None:
            statistics = self.statistics if self.options.statistics else None
            return Refereed(self.setting, heads, statistics, self.eye, self.referee, self.membership())
        if self.options.statistics:
            tasks = self.task_classes() if self.options.statistics_meet == "probabilities" else None
            return Weighted(heads, self.statistics, self.options.statistics_weight, tasks)
        return heads

    def task_classes(self) -> Sequence[int]:
        """The number of classes of each task."""
        return self.network.classes

    def membership(self) -> Tensor:
        """Which classes are of which task (tasks, classes)."""
        return membership(self.task_classes(), self.device)

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
        """That of the eye alone: what is stored does not tell how well the network does on old classes."""
        return None if self.eye is None else self.eye.ridge.expected()

    @property
    def answers_by_training(self) -> bool:
        return self.referee is None or self.heard

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
