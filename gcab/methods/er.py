"""Experience replay: a reservoir of stored images is rehearsed beside every batch (Riemer et al. 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from gcab.data.tasks import Setting, Task, TaskImages
from gcab.methods.card import Card, Compass
from gcab.methods.method import Loss
from gcab.methods.rehearsal import Replayed, ReplayedOptions
from gcab.methods.space import OneOf, space


@dataclass(frozen=True)
class ErOptions(ReplayedOptions):
    """The published rows have `loss ce`; the runs in results/ have the loss of the paper's own method."""

    loss: Loss = "bce"


class Er(Replayed):
    """Replays a uniform sample of all images seen, updated by reservoir sampling at the end of each task."""

    Options: ClassVar[type[Any]] = ErOptions
    summary = "experience replay from a reservoir of stored images (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Riemer et al., ICLR 2019, the replay alone",
        stores="a reservoir of images",
        differs="images enter at the end of a task; binary cross-entropy (published rows: `options.loss ce`)",
        compass=Compass(episodic_memory="unsupervised"),
    )
    search_space = space(loss=OneOf("bce", "ce"))
    options: ErOptions

    def __init__(self, setting: Setting, options: ErOptions) -> None:
        super().__init__(setting, options)
        before = {"stored": "images", "stored_labels": "labels", "seen": "seen"}  # in models of gcab 0.1.0
        self.register_load_state_dict_pre_hook(self.memory.renamed(before))  # type: ignore[no-untyped-call]

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        order = torch.randperm(len(data.images))
        self.memory.offer(images=data.images[order], labels=data.labels[order])
