"""Base of methods that store training images and replay them: options, draws, equal shares for tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gcab.data.tasks import Batch, Progress, Replay, Setting, Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.finetune import Finetune
from gcab.methods.memory import Memory
from gcab.methods.method import Loss
from gcab.methods.modes import evaluating
from gcab.parallel.ranks import world


@dataclass(frozen=True)
class ReplayedOptions:
    """The paper compares with buffers of 200 and 500 images."""

    buffer: int = 200  # images in all
    replay: int = 0  # of them drawn for each step, by all processes together; 0: as many as there are fresh ones
    loss: Loss = "ce"  # as published

    def __post_init__(self) -> None:
        for name in ("buffer", "replay"):
            if getattr(self, name) < 0:
                raise GcabError(f"options.{name} is {getattr(self, name)}: give a number of images, 0 or more.")


class Replayed(Finetune):
    """Fine-tuning with replay; where `ahead` is false, steps fill the memory, and replay starts in the first task."""

    columns: ClassVar[Mapping[str, Tensor]] = {}  # what the memory has beside images and labels, an entry of each
    ends: Tensor
    options: ReplayedOptions

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.memory = Memory(options.buffer, setting.image_size, self.columns)
        self.register_buffer("ends", torch.zeros(0, dtype=torch.long), persistent=False)  # classes after each task
        self.known = 0  # classes of earlier tasks; `grow` sets it

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.known = task.first
        self.ends = torch.cat([self.ends, self.ends.new_full((1,), task.first + task.classes)])

    def tasks_of_labels(self, labels: Tensor) -> Tensor:
        return torch.bucketize(labels, self.ends, right=True)

    def replay(self, count: int) -> Replay | None:
        return self.memory.draw(self.drawn(count)) if self.rehearses() else None

    def rehearses(self) -> bool:
        """Whether there are stored images to replay, or will be within the task."""
        return self.options.buffer > 0 and (len(self.ends) > 1 or not self.ahead)

    @classmethod
    def passes(cls, options: Any, fresh: int, classes: Sequence[int]) -> float:
        drawn = cls.looked_at(options, fresh, classes) if options.buffer else 0
        return super().passes(options, fresh, classes) + drawn / fresh

    @classmethod
    def looked_at(cls, options: Any, fresh: int, classes: Sequence[int]) -> int:  # noqa: ARG003
        """Stored images that a step of the last task passes through the network, beside `fresh` new ones."""
        return int(options.replay or fresh)

    def drawn(self, fresh: int) -> int:
        """Images that this process draws for a step."""
        if self.options.replay % world():
            raise GcabError(
                f"{self.options.replay} images drawn for each step cannot be shared equally by {world()} processes: "
                "change options.replay or the number of processes."
            )
        return self.options.replay // world() or fresh

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        return {"classification": self.rehearsed(self.network(batch.images), batch)}

    def rehearsed(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of all images, fresh and drawn, as one batch; of the fresh ones while the memory is empty."""
        fresh = batch.fresh
        if batch.slots is None:
            return self.classification(logits, batch.labels)
        share = len(batch.slots) / len(logits) * self.nonempty()
        new, old = logits[:fresh], logits[fresh:]
        of_new, of_old = self.classification(new, batch.labels[:fresh]), self.classification(old, batch.labels[fresh:])
        return (1 - share) * of_new + share * of_old

    def nonempty(self) -> Tensor:
        """1 if the memory holds any image, else 0: a factor on the loss of draws, which are then of empty places."""
        return (self.memory.filled > 0).float()

    def answers(self, images: Tensor) -> Tensor:
        """Logits of uint8 images, without augmentation and in eval mode."""
        with evaluating(self.network):
            return self.setting.outputs(self.network, images, self.memory.labels.device)


class SharedByTasks(Replayed):
    """⌊m / t⌋ images of every task so far, in the order of tasks; the number of tasks to come need not be known."""

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        memory, share = self.memory, self.options.buffer // (task.index + 1)
        tasks = self.tasks_of_labels(memory.everything().labels)
        kept = torch.cat([(tasks == index).nonzero().squeeze(1)[:share] for index in range(task.index + 1)])
        chosen = round_robin(data.labels.cpu())[:share].to(data.images.device)
        fresh = TaskImages(data.images[chosen], data.labels[chosen])
        joined = TaskImages(memory.images[kept], memory.labels[kept]).joined(fresh)
        columns = {
            name: torch.cat([getattr(memory, name)[kept], new]) for name, new in self.stored_columns(fresh).items()
        }
        memory.rewrite(joined.images, joined.labels, **columns)

    def stored_columns(self, images: TaskImages) -> dict[str, Tensor]:  # noqa: ARG002
        """The columns of images that enter the memory."""
        return {}


def round_robin(labels: Tensor) -> Tensor:
    """A random order of images, round-robin over classes: every prefix of it is balanced."""
    order = torch.randperm(len(labels))
    shuffled = labels[order]
    turn = torch.zeros_like(shuffled)
    for label in shuffled.unique():
        same = shuffled == label
        turn[same] = torch.arange(int(same.sum()))
    return order[turn.argsort(stable=True)]
