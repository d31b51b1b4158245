"""What methods and the training loop exchange: a task, its images, a batch of them, and where a step lies in it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gcab.data.augment import Channels, denormalise, normalise
from gcab.data.hold_out import held_out
from gcab.data.mixing import Mixed
from gcab.model.encoder import EncoderConfig
from gcab.sizes import Size

AT_ONCE = 500  # images that pass through a network together, where it does not learn

OnProgress = Callable[[float], None]  # progress callback: gets the share of the work that is done


def ignore(_: float) -> None:
    """The no-op progress callback."""


@dataclass(frozen=True)
class Task:
    """A group of classes learned together; labels are positions in the order of arrival."""

    index: int  # 0-based
    first: int  # label of the task's first class
    names: tuple[str, ...]

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> range:
        return range(self.first, self.first + self.classes)


@dataclass(frozen=True)
class Setting:
    """What a method is constructed from: encoder settings, image size, normalisation, initial weights."""

    encoder: EncoderConfig
    image_size: Size
    mean: Channels
    std: Channels
    mirrors: bool = False  # a mirrored image means the same
    weights: Mapping[str, Tensor] | None = None  # of an encoder to start from

    def normalise(self, images: Tensor) -> Tensor:
        """Uint8 images as the network expects them."""
        return normalise(images, self.mean, self.std)

    def chunks(self, images: Tensor, device: torch.device) -> Iterator[Tensor]:
        """Uint8 images, normalised on the device, `AT_ONCE` at a time."""
        return (self.normalise(part.to(device)) for part in images.split(AT_ONCE))

    @torch.no_grad()
    def outputs(self, function: Callable[[Tensor], Tensor], images: Tensor, device: torch.device) -> Tensor:
        """A function's float32 outputs on the device for uint8 images, chunk by chunk."""
        return torch.cat([function(part).float() for part in self.chunks(images, device)])

    def pixels(self, images: Tensor) -> Tensor:
        """Inverse of `normalise`: pixel values from 0 to 255, as float32."""
        return denormalise(images, self.mean, self.std)


@dataclass(frozen=True)
class Batch:
    """Augmented, normalised images with their labels: first those of the task, then those replayed."""

    images: Tensor  # (B, 3, H, W) float
    labels: Tensor  # (B,) int64
    fresh: int | None = None  # how many are the task's own; None: all
    slots: Tensor | None = None  # where in the memory the others are stored
    raw: Tensor | None = None  # the task's own as bytes, for methods that store some of them (`Method.ahead` is false)
    targets: Mapping[str, Tensor] = field(default_factory=dict)  # what a teacher makes of the images
    mixed: Mixed | None = None  # with what each image is mixed, for methods that learn from such (`Method.mixes`)

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name, for copying into static buffers."""
        own = {"images": self.images, "labels": self.labels, "slots": self.slots, "raw": self.raw}
        if self.mixed is not None:
            own |= {"mixed_labels": self.mixed.labels, "mixed_shares": self.mixed.shares}
        return {name: value for name, value in {**own, **self.targets}.items() if value is not None}


@dataclass(frozen=True)
class Progress:
    """Where in the current task a step lies; the step is a tensor so that a recorded step can advance it."""

    step: Tensor  # 0-based, within the epoch
    steps: int  # per epoch


@dataclass(frozen=True)
class TaskImages:
    """The training images of a task, as bytes."""

    images: Tensor  # (n, 3, H, W) uint8
    labels: Tensor  # (n,) int64

    def divided(self, share: float) -> "tuple[TaskImages, TaskImages | None]":
        """The images to train on, and a share of every class held out; None where no class has enough images."""
        return self.parted(self.held_out(share))

    def held_out(self, share: float, apart: bool = False) -> Tensor:
        """Mask of the images that `divided` holds out (n,); `apart`: without near-duplicates among the others."""
        return held_out(self.images, self.labels, share, apart)

    def parted(self, chosen: Tensor) -> "tuple[TaskImages, TaskImages | None]":
        """Split by a mask: the images that are not chosen, and those that are, if any."""
        return (self.where(~chosen), self.where(chosen)) if chosen.any() else (self, None)

    def joined(self, others: "TaskImages | None") -> "TaskImages":
        """Concatenated with others."""
        if others is None:
            return self
        images, labels = others.images.to(self.images.device), others.labels.to(self.labels.device)
        return TaskImages(torch.cat([self.images, images]), torch.cat([self.labels, labels]))

    def some_of_each(self, count: int) -> "TaskImages":
        """About so many images of every class, at least one and evenly spaced, or all there are."""
        chosen = torch.zeros(len(self.labels), dtype=torch.bool)
        for label in self.labels.unique():
            its = (self.labels == label).nonzero().flatten()
            chosen[its[:: -(-len(its) // max(1, count))]] = True
        return self.where(chosen)

    def of(self, labels: range) -> "TaskImages":
        """The images of a range of classes."""
        chosen = (self.labels >= labels.start) & (self.labels < labels.stop)
        return self if chosen.all() else self.where(chosen)

    def where(self, chosen: Tensor) -> "TaskImages":
        return TaskImages(self.images[chosen], self.labels[chosen])


@dataclass(frozen=True)
class Replay(TaskImages):
    """Stored images, and the places of a memory that they are from."""

    slots: Tensor  # (n,) int64


Part = Callable[[Tensor, Tensor], Tensor]  # from images and their `Method.features` to logits
