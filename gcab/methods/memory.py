"""Stored training images, for methods that rehearse: a fixed number of places, every byte of them counted.

Operations have fixed shapes and never synchronise with the device, so that they can be part of a recorded step; several
processes that train together keep the same memory, as each of them draws the same random numbers for the whole batch.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gcab.data.tasks import Replay, TaskImages
from gcab.model.exact import at, in_double
from gcab.parallel.ranks import gathered, rows, world
from gcab.sizes import Size, sides


class Memory(nn.Module):
    """A fixed-size store of uint8 images, their labels, and named columns of further values for each image."""

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

    def __init__(self, places: int, image_size: Size, columns: Mapping[str, Tensor] | None = None) -> None:
        """`columns`: for each name an example entry, such as `torch.zeros(10)`, for shape, dtype and initial value."""
        super().__init__()
        self.places = places
        self.register_buffer("images", torch.zeros(places, 3, *sides(image_size), dtype=torch.uint8))
        self.register_buffer("labels", torch.zeros(places, dtype=torch.long))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.columns = tuple(columns or {})
        for name, entry in (columns or {}).items():
            self.register_buffer(name, torch.empty(places, *entry.shape, dtype=entry.dtype).copy_(entry))

    def widen(self, name: str, more: int) -> None:
        """Append `more` zeros to each entry of a column, as for the logits of new classes."""
        column: Tensor = getattr(self, name)
        setattr(self, name, torch.cat([column, column.new_zeros(*column.shape[:-1], more)], dim=-1))

    def draw(self, count: int) -> Replay:
        """This process's share of `count` random images per process, without replacement while there are enough."""
        return self.at(rows(self.sample(count * world())))

    def sample(self, count: int) -> Tensor:
        """Random places of `count` stored images, the same in all processes."""
        keys = torch.rand(self.places, device=self.labels.device)
        shuffled = keys.masked_fill(~self.full(), -1.0).argsort(descending=True)
        turn = torch.arange(count, device=keys.device) % self.filled.clamp_min(1)
        return shuffled[turn]

    def choose(self, scores: Tensor, count: int) -> Tensor:
        """`count` independent random places, with probabilities proportional to `scores` (places,)."""
        return (torch.rand(count, self.places, device=scores.device).log() / scores).argmax(dim=1)

    def full(self) -> Tensor:
        """Mask of the places that hold an image."""
        return torch.arange(self.places, device=self.filled.device) < self.filled

    def at(self, slots: Tensor) -> Replay:
        return Replay(self.images[slots], self.labels[slots], slots)

    def everything(self) -> TaskImages:
        """All stored images; synchronises with the device."""
        count = int(self.filled)
        return TaskImages(self.images[:count], self.labels[:count])

    @torch.no_grad()
    def reservoir(self, images: Tensor, labels: Tensor, **columns: Tensor) -> None:
        """`offer` for a step's batch, whose rows are spread over the processes."""
        values = {"images": images, "labels": labels, **columns}
        self.offer(**{name: gathered(value.to(self.labels.device)) for name, value in values.items()})

    @torch.no_grad()
    def offer(self, **values: Tensor) -> None:
        """Reservoir sampling: image n takes a free place, or one drawn from 0..n if that is within the memory."""
        device, count = self.labels.device, len(values["labels"])
        number = self.seen + torch.arange(count, device=device)
        exact = in_double(device)
        drawn = at((torch.rand(count, dtype=torch.float64, device=exact) * at(number + 1, exact)).long(), device)
        self.enter(torch.where(number < self.places, number, drawn), values)

    def enter(self, slots: Tensor, values: Mapping[str, Tensor]) -> None:
        """Write the next images of the stream into their slots; those with a slot of `places` or more are dropped."""
        self.put(self.winners(slots), values)
        self.seen.add_(len(slots))
        self.filled.copy_(self.seen.clamp_max(self.places))

    def fill(self, values: Mapping[str, Tensor]) -> Tensor:
        """Write the next images of the stream into free places; returns the index in the stream of each image."""
        count = len(values["labels"])
        number = self.seen + torch.arange(count, device=self.seen.device)
        self.put(self.winners(number), values)
        self.filled.copy_((self.seen + count).clamp_max(self.places))
        return number

    @torch.no_grad()
    def update(self, slots: Tensor, **columns: Tensor) -> None:
        """Overwrite column entries in the slots that this process's images were drawn from."""
        self.put(self.winners(gathered(slots)), {name: gathered(value) for name, value in columns.items()})

    def winners(self, slots: Tensor) -> Tensor:
        """For each place the last row that is written to it, -1 if there is none."""
        winner = torch.full((self.places + 1,), -1, device=slots.device)
        winner.scatter_reduce_(0, slots.clamp_max(self.places), torch.arange(len(slots), device=slots.device), "amax")
        return winner[:-1]

    def put(self, winner: Tensor, values: Mapping[str, Tensor]) -> None:
        """Copy into every place the row that `winner` (places,) names; -1 leaves it as it is."""
        for name, value in values.items():
            held: Tensor = getattr(self, name)
            new = value.to(held.device)[winner.clamp_min(0)]
            held.copy_(torch.where((winner >= 0).view(-1, *[1] * (held.ndim - 1)), new.to(held.dtype), held))

    @torch.no_grad()
    def rewrite(self, images: Tensor, labels: Tensor, **columns: Tensor) -> None:
        """Replace all stored images by these, of which there may be fewer than places."""
        count = len(labels)
        assert count <= self.places, f"{count} images for {self.places} places"
        for name, value in {"images": images, "labels": labels, **columns}.items():
            held: Tensor = getattr(self, name)
            held.zero_()
            held[:count] = value.to(held.device)
        self.filled.fill_(count)

    def image_bytes(self) -> int:
        """Bytes of the images of all places, filled or not."""
        return self.images.nbytes

    def column_bytes(self) -> int:
        """Bytes of the columns of all places."""
        return sum(getattr(self, name).nbytes for name in self.columns)

    def renamed(self, old: Mapping[str, str]) -> Any:
        """A hook for `load_state_dict` that maps names of states from before there was a `Memory`: old -> new."""

        def rename(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:  # noqa: ARG001
            for before, now in old.items():
                if prefix + before in state:
                    state[f"{prefix}memory.{now}"] = state.pop(prefix + before)
            if f"{prefix}memory.seen" in state and f"{prefix}memory.filled" not in state:
                state[f"{prefix}memory.filled"] = state[f"{prefix}memory.seen"].clamp_max(self.places)

        return rename
