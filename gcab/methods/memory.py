"""Stored training images, for methods that rehearse: a fixed number of places, every byte of them counted.

Everything here has fixed shapes and never waits for the device, so that it may happen inside a recorded step; several
processes that train together keep the same memory, as each of them draws the same random numbers for the whole batch.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gcab.data.tasks import Replay, TaskImages
from gcab.parallel.ranks import gathered, rows, world


class Memory(nn.Module):
    """Images as bytes, their labels, and named columns: what a method remembers of each image."""

    purposes: ClassVar[dict[str, str]] = {
        "images": "STORED TRAINING IMAGES",
        "labels": "classes of the stored training images",
        "filled": "number of stored training images",
        "seen": "number of training images seen",
        "": "remembered beside each stored training image",
    }
    images: Tensor
    labels: Tensor
    filled: Tensor
    seen: Tensor

    def __init__(self, places: int, image_size: int, columns: Mapping[str, Tensor] | None = None) -> None:
        """`columns`: for each name one entry, such as `torch.zeros(10)`, whose shape and type all places get."""
        super().__init__()
        self.places = places
        self.register_buffer("images", torch.zeros(places, 3, image_size, image_size, dtype=torch.uint8))
        self.register_buffer("labels", torch.zeros(places, dtype=torch.long))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.columns = tuple(columns or {})
        for name, entry in (columns or {}).items():
            self.register_buffer(name, entry.expand(places, *entry.shape).clone())

    def widen(self, name: str, more: int) -> None:
        """So many zeros at the end of each entry of a column, as for the logits of new classes."""
        column: Tensor = getattr(self, name)
        setattr(self, name, torch.cat([column, column.new_zeros(*column.shape[:-1], more)], dim=-1))

    def draw(self, count: int) -> Replay:
        """Images for each of this process's places in a batch: without replacement while there are enough."""
        keys = torch.rand(self.places, device=self.labels.device)
        empty = torch.arange(self.places, device=keys.device) >= self.filled
        shuffled = keys.masked_fill(empty, -1.0).argsort(descending=True)
        turn = torch.arange(count * world(), device=keys.device) % self.filled.clamp_min(1)
        return self.at(rows(shuffled[turn]))

    def at(self, slots: Tensor) -> Replay:
        return Replay(self.images[slots], self.labels[slots], slots)

    def everything(self) -> TaskImages:
        """All images that are stored; it waits for the device."""
        count = int(self.filled)
        return TaskImages(self.images[:count], self.labels[:count])

    @torch.no_grad()
    def reservoir(self, images: Tensor, labels: Tensor, **columns: Tensor) -> None:
        """A uniform sample of the stream: number n of it takes a free place, or one of all n + 1 at random."""
        device, values = self.labels.device, {"images": images, "labels": labels, **columns}
        values = {name: gathered(value.to(device)) for name, value in values.items()}
        count = len(values["labels"])
        number = self.seen + torch.arange(count, device=device)
        drawn = (torch.rand(count, dtype=torch.float64, device=device) * (number + 1)).long()
        slot = torch.where(number < self.places, number, drawn)
        winner = torch.full((self.places + 1,), -1, device=device)  # the row that a place gets; the last one counts
        winner.scatter_reduce_(0, slot.clamp_max(self.places), torch.arange(count, device=device), "amax")
        self.put(winner[:-1], values)
        self.seen.add_(count)
        self.filled.copy_(self.seen.clamp_max(self.places))

    def put(self, winner: Tensor, values: Mapping[str, Tensor]) -> None:
        """Into every place the row that `winner` (places,) names; -1 leaves it as it is."""
        for name, value in values.items():
            held: Tensor = getattr(self, name)
            new = value[winner.clamp_min(0)]
            held.copy_(torch.where((winner >= 0).view(-1, *[1] * (held.ndim - 1)), new.to(held.dtype), held))

    @torch.no_grad()
    def rewrite(self, images: Tensor, labels: Tensor, **columns: Tensor) -> None:
        """These images and no others from now on; there may be fewer than places."""
        count = len(labels)
        assert count <= self.places, f"{count} images for {self.places} places"
        for name, value in {"images": images, "labels": labels, **columns}.items():
            held: Tensor = getattr(self, name)
            held.zero_()
            held[:count] = value.to(held.device)
        self.filled.fill_(count)

    def image_bytes(self) -> int:
        """Of all places, filled or not."""
        return self.images.nbytes

    def column_bytes(self) -> int:
        """Of all that is stored beside images and labels."""
        return sum(getattr(self, name).nbytes for name in self.columns)

    def renamed(self, old: Mapping[str, str]) -> Any:
        """A hook that lets a method load a state from before it had a memory: old name -> name in here."""

        def rename(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:  # noqa: ARG001
            for before, now in old.items():
                if prefix + before in state:
                    state[f"{prefix}memory.{now}"] = state.pop(prefix + before)
            if f"{prefix}memory.seen" in state and f"{prefix}memory.filled" not in state:
                state[f"{prefix}memory.filled"] = state[f"{prefix}memory.seen"].clamp_max(self.places)

        return rename
