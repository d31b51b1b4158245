"""Distillation: a teacher for the time of a task, and losses between its logits and the student's."""

from typing import Any

from torch import Tensor
from torch.nn import functional

from gcab.data.tasks import Setting, Task
from gcab.methods.method import Method
from gcab.model.frozen import Frozen


class Taught(Method):
    """Has a teacher from the second task on, the network as it was before the task; `end_task` must remove it."""

    network: Any

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.teacher: Frozen | None = None
        self.known = 0  # classes of earlier tasks

    def begin_task(self, task: Task) -> None:
        self.known = task.first
        if task.index > 0:
            self.teacher = Frozen(self.network)


def softened_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(z⁻ / T) ‖ softmax(z / T)), a mean over images (Hinton et al. 2015); 0 where both agree.

    T² keeps its gradient as large as that of a cross-entropy, whatever T is.
    """
    now, before = ((logits.float() / temperature).log_softmax(dim=1) for logits in (student, teacher))
    return temperature**2 * functional.kl_div(now, before, reduction="batchmean", log_target=True)


def sigmoid_cross_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    """Binary cross-entropy with the teacher's σ(z⁻), a mean over images and classes: each class by itself."""
    return functional.binary_cross_entropy_with_logits(student.float(), teacher.float().sigmoid())
