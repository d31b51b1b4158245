"""The interface of every method; the trainer knows nothing else about one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.data.augment import Augment
from gcab.data.mixing import Mixed
from gcab.data.tasks import Batch, OnProgress, Part, Progress, Replay, Setting, Task, TaskImages, ignore
from gcab.errors import GcabError
from gcab.methods.card import Card
from gcab.methods.gradients import Gradients
from gcab.methods.memory import Memory
from gcab.methods.space import Space, space
from gcab.seeds import seeded

Loss = Literal["ce", "bce"]  # softmax or binary cross-entropy


class Method(nn.Module, ABC):
    """A way to learn task after task. `state_dict()` is all it remembers: no plain attribute may carry knowledge."""

    Options: ClassVar[type[Any]]  # frozen dataclass of the method's own settings
    summary: ClassVar[str]  # one line for `gcab list methods`
    card: ClassVar[Card] = Card()  # where it comes from, what it stores, its place on the CLEVA-Compass
    profiles: ClassVar[dict[str, dict[str, Any]]] = {}  # profile -> {dotted config key: value}
    search_space: ClassVar[Space] = space()  # what `gcab search` may change
    joint: ClassVar[bool] = False  # trains on all tasks at once: the upper bound
    trains: ClassVar[bool] = True  # has parameters to train; else it learns from `end_task` alone
    recorded: ClassVar[bool] = True  # a step may be recorded: no branch on a value, the same shapes every time
    mixes: ClassVar[bool] = False  # learns from images that are mixed with each other (`augment.cutmix`)
    square: ClassVar[bool] = False  # turns images by 90 degrees, so that they must be square
    sums: ClassVar[str] = "its other parts"  # what in it learns without training, in words, if it is `additive`
    ahead: ClassVar[bool] = True  # the next batch may be prepared during a step; false where a step changes the memory

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__()
        self.setting, self.options = setting, options
        self.watch: OnProgress = ignore  # progress callback of `end_task`
        self.augment: Augment | None = None  # during `end_task`, for methods that train within it

    @classmethod
    def additive(cls, options: Any) -> bool:  # noqa: ARG003
        """Whether images of any classes can be added: of one alone, or of classes that were learned before."""
        return False

    @classmethod
    def sees(cls, options: Any) -> bool:  # noqa: ARG003
        """Whether it has an untrained eye, to which an image and its mirror image may be the same (`augment.flip`)."""
        return False

    def learns(self, task: Task) -> bool:  # noqa: ARG002
        """Whether a lesson of this task has anything to train."""
        return self.trains

    @property
    def judged(self) -> bool:
        """Whether `end_task` uses held-out images."""
        return False

    @abstractmethod
    def grow(self, task: Task) -> None:
        """Add the task's parameters and buffers; a checkpoint is rebuilt by replaying `grow` and loading strictly."""

    def begin_task(self, task: Task) -> None:
        """Make what only this task's training needs, such as a teacher; `end_task` removes it."""

    def first_sight(self, task: Task, data: TaskImages) -> None:
        """Compute from the task's images what training does not change; `end_task` does it if this was not called."""

    def among(self) -> TaskImages | None:
        """Stored images that are shuffled among the task's own; None for methods that store none, or replay them."""
        return None

    def replay(self, count: int) -> Replay | None:  # noqa: ARG002
        """Stored images to train on beside each batch; None for methods that store none."""
        return None

    def batch(self, batch: Batch) -> Batch:
        """Add what the loss needs and training does not change, such as a teacher's targets."""
        return batch

    def rate(self, task: Task, epoch: int) -> float:  # noqa: ARG002
        """A factor on the learning rate of an epoch, the first of which is number 0."""
        return 1.0

    @abstractmethod
    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        """Named terms; the trainer minimises their sum and logs each."""

    def before_step(self, progress: Progress, batch: Batch, gradients: Gradients) -> None:
        """Gradients are ready: mask, project or rescale them, each in place or all as one vector."""

    def after_step(self, progress: Progress, batch: Batch) -> None:
        """Parameters have moved: restore, clamp or record."""

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        """Last sight of the task's images, and of its held-out images."""

    def last_sight(self, task: Task, held_out: TaskImages) -> None:
        """Learn the held-out images, too, where `left_out` can give leave-one-out logits of them."""

    def left_out(self, data: TaskImages, trained: bool) -> Tensor | None:  # noqa: ARG002
        """Leave-one-out logits (n, classes) of images that it has learned; None where the method has none.

        `trained`: whether they were trained on rather than held out.
        """
        return None

    @property
    def unit(self) -> float:
        """The scale of its logits, in units of which temperatures before and after a task are comparable."""
        return 1.0

    def preview_end(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        """`end_task` on a copy, without what takes long and does not change predictions much."""
        self.end_task(task, data, held_out)

    def forget(self, label: int, images: Tensor | None = None) -> tuple[str, ...]:  # noqa: ARG002
        """Remove a class, given its uint8 images (n, 3, H, W) if available; returns in words what is left of it."""
        raise GcabError("this method cannot forget a class: what it learned of one is in all of its weights.")

    def join(self, label: int, other: int) -> tuple[str, ...]:  # noqa: ARG002
        """Merge class `other` into `label`; returns in words what is not as if both had been learned as one."""
        raise GcabError("this method cannot join classes: what it learned of each is in all of its weights.")

    def merge(self, other: "Method", places: Sequence[int]) -> None:  # noqa: ARG002
        """Add what another model has learned; `places` are the labels that its classes have here."""
        raise GcabError(
            "only models of the method eye or frozen can be merged: networks that were trained apart do not add up."
        )

    def image_counts(self) -> list[int] | None:
        """Images learned of each class; None where the method does not count them."""
        return None

    @property
    def answers_by_training(self) -> bool:
        """Whether what is trained in epochs has a say in its answers."""
        return self.trains

    def verdict(self) -> str | None:
        """What the held-out images decided about the network and the eye, in one line for the user; None without."""
        return None

    def expected(self) -> Tensor | None:
        """Expected accuracy on new images of each class, 0 to 1, estimated from what it stores."""
        return None

    def ending_seconds(self, images: Tensor) -> float:  # noqa: ARG002
        """Estimated duration of `end_task`, from timing a small part of it; 0 where it is negligible."""
        return 0.0

    @abstractmethod
    def predict(self, images: Tensor) -> Tensor:
        """Logits (B, classes seen); there is no task in the signature."""

    def predictor(self) -> Callable[[Tensor], Tensor]:
        """`predict` with constants computed once, valid until the method learns again."""
        return self.predict

    def features(self, images: Tensor) -> Tensor | None:  # noqa: ARG002
        """Encoder tokens (B, N, D), for drift and transfer figures."""
        return None

    def parts(self) -> dict[str, Part]:
        """The logits of parts of the method alone, which show what each is worth."""
        return {}

    def compensate(self, features: Tensor, task: int) -> Tensor | None:  # noqa: ARG002
        """Newest features mapped into the space of an earlier task; None where the method cannot."""
        return None

    def embed(self, images: Tensor, task: int, compensate: bool) -> Tensor | None:  # noqa: ARG002
        """The decoder's feature (B, D) in a task's pass, for the embedding figure."""
        return None

    def capacity(self) -> dict[str, float]:
        """Share of each gate's units used by finished tasks."""
        return {}

    def counted(self) -> dict[str, list[int]]:
        """Event counts in the training of each task, for its record."""
        return {}

    @property
    def device(self) -> torch.device:
        """The device for images; some tensors may be elsewhere, as sums in double precision are."""
        return next(chain(self.parameters(), self.buffers())).device

    def memories(self) -> list[Memory]:
        """Every memory of training images in it."""
        return [module for module in self.modules() if isinstance(module, Memory)]

    def stored_images(self) -> int:
        """Training images that it keeps."""
        return sum(int(memory.filled) for memory in self.memories())

    def image_bytes(self) -> int:
        """Bytes of stored training images; 0 for exemplar-free methods."""
        return sum(memory.image_bytes() for memory in self.memories())

    def prototype_bytes(self) -> int:
        """Bytes of other knowledge about old images: class statistics, anchors, stored outputs, importances."""
        return sum(memory.column_bytes() for memory in self.memories())

    @classmethod
    def passes(cls, options: Any, fresh: int, classes: Sequence[int]) -> float:  # noqa: ARG003
        """Images that a step of the last task passes through the trained network, per fresh image.

        `classes` has the number of classes of each task. Passes through a frozen teacher do not count.
        """
        return 1.0 if cls.trains else 0.0

    def tasks_of(self, number: int) -> str:
        """The tasks that the number in a tensor's name stands for, in words."""
        return f"task {number + 1}"


def grow(method: Method, task: Task, seed: int) -> None:
    """Add a task's parameters, with initial values that depend on seed and task only."""
    with seeded(seed, "grow", task.index):
        method.grow(task)


def cross_entropy(logits: Tensor, labels: Tensor, first: int = 0) -> Tensor:
    """Softmax cross-entropy over the classes from `first` on."""
    return functional.cross_entropy(logits, labels - first)


def binary_cross_entropy(logits: Tensor, labels: Tensor, first: int = 0, mixed: Mixed | None = None) -> Tensor:
    """L_BCE over the classes from `first` on: a binary problem for every class."""
    targets = functional.one_hot(labels - first, logits.shape[1]).to(logits.dtype)
    if mixed is not None:
        others = functional.one_hot(mixed.labels - first, logits.shape[1]).to(logits.dtype)
        targets = others + mixed.shares[:, None].to(logits.dtype) * (targets - others)
    return functional.binary_cross_entropy_with_logits(logits, targets)


def losses(kind: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of each image, whose mean is `cross_entropy` or `binary_cross_entropy`."""
    if kind == "ce":
        return functional.cross_entropy(logits, labels, reduction="none")
    # `one_hot` reads the labels' values, which `vmap` does not allow for per-image gradients.
    targets = (labels[:, None] == torch.arange(logits.shape[1], device=labels.device)).to(logits.dtype)
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)


def state_bytes(method: Method) -> int:
    """Bytes of the method's whole state_dict, images and prototypes included."""
    return sum(value.numel() * value.element_size() for value in method.state_dict().values())


def parameter_count(method: Method) -> int:
    return sum(parameter.numel() for parameter in method.parameters())


def pooled(features: Tensor) -> Tensor:
    """One vector per image: the mean over its tokens."""
    return torch.mean(features.float(), dim=1)
