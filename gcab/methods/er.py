"""Experience replay: a reservoir of stored images is rehearsed beside every batch (Riemer et al. 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from gcab.data.tasks import Replay, Setting, Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.finetune import Finetune
from gcab.methods.memory import Memory


@dataclass(frozen=True)
class ErOptions:
    """The paper compares with buffers of 200 and 500 images."""

    buffer: int = 200  # images in all

    def __post_init__(self) -> None:
        if self.buffer < 0:
            raise GcabError(f"options.buffer is {self.buffer}: give a number of images, 0 or more.")


class Er(Finetune):
    """Keeps a uniform sample of all images seen; every byte of it is counted."""

    Options: ClassVar[type[Any]] = ErOptions
    summary = "experience replay from a reservoir of stored images (--options.buffer, 200 images)"
    options: ErOptions

    def __init__(self, setting: Setting, options: ErOptions) -> None:
        super().__init__(setting, options)
        self.memory = Memory(options.buffer, setting.image_size)
        before = {"stored": "images", "stored_labels": "labels", "seen": "seen"}  # in models of gcab 0.1.0
        self.register_load_state_dict_pre_hook(self.memory.renamed(before))  # type: ignore[no-untyped-call]

    def replay(self, count: int) -> Replay | None:
        if len(self.network.head.parts) < 2 or self.options.buffer == 0:
            return None
        return self.memory.draw(count)

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        order = torch.randperm(len(data.images))
        self.memory.reservoir(data.images[order], data.labels[order])
