"""A task's images on the device: resident when they fit, else streamed with one batch prefetched."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property

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
        source = self.source
        with source.epoch(order):
            for number in range(len(order)):
                source.ready(number)
                batch = source.batch(torch.tensor([number], device=source.images.device))
                source.taken(number)
                yield batch

    @cached_property
    def source(self) -> "ResidentBatches | StreamedBatches":
        """Where a step finds its batch, in buffers whose addresses stay the same."""
        return ResidentBatches(self) if self.resident else StreamedBatches(self)


class ResidentBatches:
    """Batches indexed on the device, which holds all images."""

    def __init__(self, feed: Feed) -> None:
        self.images, self.labels = feed.images, feed.labels
        # One row more than there are steps: the last step prepares a batch that is not learned from.
        self.order = torch.zeros(feed.steps + 1, feed.batch_size // world(), dtype=torch.long, device=feed.device)

    @contextmanager
    def epoch(self, order: Tensor) -> Iterator[None]:
        self.order[:-1].copy_(order)
        yield

    def ready(self, number: int) -> None:
        """All batches are."""

    def taken(self, number: int) -> None:
        """Nothing to do, as no buffer is reused."""

    def batch(self, position: Tensor) -> tuple[Tensor, Tensor]:
        pick = self.order.index_select(0, position).squeeze(0)
        return self.images.index_select(0, pick), self.labels.index_select(0, pick)  # on a CPU 10 x as fast as [pick]


class StreamEvent:
    """A CUDA event recorded in the current stream; on a CPU, where everything is synchronous, it does nothing."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.event = device, torch.cuda.Event() if device.type == "cuda" else None
        if self.event is not None:
            self.event.record(torch.cuda.current_stream(device))

    def synchronize(self) -> None:
        """Block the host until the event has happened."""
        if self.event is not None:
            self.event.synchronize()

    def wait_in_stream(self) -> None:
        """Make the current stream wait for the event, without blocking the host."""
        if self.event is not None:
            torch.cuda.current_stream(self.device).wait_event(self.event)


class StreamedBatches:
    """Double buffering: while a step reads one of two slots, a thread fills the other.

    Batch i goes through slot i % 2 of pinned host memory to slot i % 2 on the device, on a side stream. Their addresses
    stay the same, so a recorded step can read them.
    """

    slots = 2

    def __init__(self, feed: Feed) -> None:
        self.data, self.device = (feed.images, feed.labels), feed.device
        size = feed.batch_size // world()

        def slots_for(rows: Tensor) -> tuple[Tensor, Tensor]:
            """Host and device buffers, filled with real rows, as the warm-up steps before recording train on them."""
            shape = (self.slots, size, *rows.shape[1:])
            host = torch.empty(shape, dtype=rows.dtype, pin_memory=feed.device.type == "cuda")
            return host, host.copy_(rows[:size]).to(feed.device, copy=True)

        (host_images, self.images), (host_labels, self.labels) = map(slots_for, self.data)
        self.host = (host_images, host_labels)
        self.copying = torch.cuda.Stream(feed.device) if feed.device.type == "cuda" else None
        self.sent: list[StreamEvent | None] = [None] * self.slots
        self.arriving: dict[int, Future[StreamEvent]] = {}

    @contextmanager
    def epoch(self, order: Tensor) -> Iterator[None]:
        self.order = order
        self.arriving.clear()
        with ThreadPoolExecutor(1) as self.worker:
            for number in range(self.slots):
                self._send(number)
            yield

    def ready(self, number: int) -> None:
        """Make the current stream wait until this batch is in its slot."""
        if number < len(self.order):
            self.arriving.pop(number).result().wait_in_stream()

    def taken(self, number: int) -> None:
        """All reads of this batch are in the current stream: after them its slot is refilled."""
        self._send(number + self.slots)

    def batch(self, position: Tensor) -> tuple[Tensor, Tensor]:
        slot = position % self.slots
        return self.images.index_select(0, slot).squeeze(0), self.labels.index_select(0, slot).squeeze(0)

    def _send(self, number: int) -> None:
        if number < len(self.order):
            self.arriving[number] = self.worker.submit(self._move, number, StreamEvent(self.device))

    def _move(self, number: int, read: StreamEvent) -> StreamEvent:
        slot, pick = number % self.slots, self.order[number]
        if (sent := self.sent[slot]) is not None:
            sent.synchronize()
        for rows, host in zip(self.data, self.host, strict=True):
            torch.index_select(rows, 0, pick, out=host[slot])
        with torch.cuda.stream(self.copying):
            read.wait_in_stream()
            for host, target in zip(self.host, (self.images, self.labels), strict=True):
                target[slot].copy_(host[slot], non_blocking=True)
            self.sent[slot] = event = StreamEvent(self.device)
        return event
