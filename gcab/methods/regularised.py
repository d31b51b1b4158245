"""Base of methods that store no image and add a regularisation term to the loss."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from gcab.data.tasks import Setting, Task, TaskImages
from gcab.errors import check_options
from gcab.methods.finetune import Finetune
from gcab.methods.method import Loss
from gcab.model.frozen import Frozen


@dataclass(frozen=True)
class RegularisedOptions:
    """Labels train the newest head only: without stored images they would teach the others to reject every image."""

    weight: float = 1.0  # λ of the term
    loss: Loss = "ce"
    heads: Literal["new", "all"] = "new"  # that the labels train; new: FACIL, all: Mammoth

    def __post_init__(self) -> None:
        check_options(self, weights=("weight",))


class Regularised(Finetune):
    """Fine-tuning with a regularisation term from the second task on."""

    options: RegularisedOptions

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.known = 0  # classes of earlier tasks; `grow` sets it

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.known = task.first

    @property
    def held(self) -> bool:
        """Whether the regularisation term applies: there are old classes, and its weight is not 0."""
        return self.known > 0 and self.options.weight > 0

    def labelled(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The classification loss of the heads that labels train."""
        return self.classification(logits, labels, self.known if self.options.heads == "new" else 0)


class Distilled(Regularised):
    """Regularised by a teacher, the network as it was before the task; nothing is stored between tasks."""

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.teacher: Frozen | None = None

    def begin_task(self, task: Task) -> None:  # noqa: ARG002
        if self.held:
            self.teacher = Frozen(self.network)

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        self.teacher = None
