"""Experience replay: a reservoir of stored images is rehearsed beside every batch (Riemer et al. 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gcab.data.tasks import Setting, Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.finetune import Finetune
from gcab.parallel.ranks import uniform


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
    stored: Tensor
    stored_labels: Tensor
    seen: Tensor

    def __init__(self, setting: Setting, options: ErOptions) -> None:
        super().__init__(setting, options)
        size = setting.image_size
        self.register_buffer("stored", torch.zeros(options.buffer, 3, size, size, dtype=torch.uint8))
        self.register_buffer("stored_labels", torch.zeros(options.buffer, dtype=torch.long))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def replay(self, count: int) -> TaskImages | None:
        if len(self.network.head.parts) < 2 or self.options.buffer == 0:
            return None
        filled = self.seen.clamp_max(self.options.buffer)
        picked = (uniform(count, device=self.seen.device) * filled).long()
        return TaskImages(self.stored[picked], self.stored_labels[picked])

    @torch.no_grad()
    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        """Reservoir sampling: image number n of the stream replaces a random slot with probability buffer / n."""
        sources: dict[int, int] = {}  # slot -> image of this task
        seen = int(self.seen)
        for image in torch.randperm(len(data.images)).tolist():
            slot = seen if seen < self.options.buffer else int(torch.randint(seen + 1, ()))
            if slot < self.options.buffer:
                sources[slot] = image
            seen += 1
        slots = torch.tensor(list(sources), dtype=torch.long)
        images = torch.tensor(list(sources.values()), dtype=torch.long)
        self.stored[slots.to(self.stored.device)] = data.images[images].to(self.stored.device)
        self.stored_labels[slots.to(self.stored.device)] = data.labels[images].to(self.stored.device)
        self.seen.fill_(seen)

    def image_bytes(self) -> int:
        return self.stored.numel() * self.stored.element_size()
