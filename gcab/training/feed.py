"""A task's images on the device: resident when they fit, else streamed batch by batch, one ahead."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from gcab.data.tasks import TaskImages
from gcab.errors import GcabError
from gcab.parallel.ranks import rank, world

LARGEST_SHARE = 0.5  # of the device's free memory that images may take


def fits(images: Tensor, device: torch.device) -> bool:
    """Whether the images may live on the device beside the network."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return images.nbytes <= LARGEST_SHARE * free


class Feed:
    """Shuffled batches of a task on the training device."""

    def __init__(self, data: TaskImages, batch_size: int, device: torch.device, resident: bool | None = None) -> None:
        self.device, self.batch_size = device, min(batch_size, len(data.labels))
        if self.batch_size % world():
            raise GcabError(
                f"a batch of {self.batch_size} of the task's {len(data.labels)} images cannot be shared equally by "
                f"{world()} processes: change training.batch_size or the number of processes."
            )
        self.resident = fits(data.images, device) if resident is None else resident
        self.images = data.images.to(device) if self.resident else data.images
        self.labels = data.labels.to(device) if self.resident else data.labels

    @property
    def steps(self) -> int:
        """Batches in an epoch; a last, partial batch is dropped as in the authors' code."""
        return len(self.labels) // self.batch_size

    def order(self, shuffle: torch.Generator) -> Tensor:
        """Which images make this process's part of each batch: (steps, batch), drawn from a generator on the CPU."""
        order = torch.randperm(len(self.labels), generator=shuffle)[: self.steps * self.batch_size]
        return order.to(self.images.device).view(self.steps, self.batch_size)[:, rank() :: world()]

    def batches(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Every batch of one epoch."""
        if self.resident:
            for pick in order:
                yield self._pick(pick)
        else:
            yield from self._prefetched(order)

    def _prefetched(self, picks: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        with ThreadPoolExecutor(1) as worker:
            ahead = worker.submit(self._move, picks[0])
            for pick in picks[1:]:
                ready = ahead.result()
                ahead = worker.submit(self._move, pick)
                yield ready
            yield ahead.result()

    def _pick(self, pick: Tensor) -> tuple[Tensor, Tensor]:
        return self.images.index_select(0, pick), self.labels.index_select(0, pick)  # on a host 10 x as fast as [pick]

    def _move(self, pick: Tensor) -> tuple[Tensor, Tensor]:
        images, labels = self._pick(pick)
        if self.device.type == "cuda":
            images, labels = images.pin_memory(), labels.pin_memory()
        return images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
