"""Distillation losses between the logits of a student and a teacher."""

from torch import Tensor
from torch.nn import functional


def softened_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(z⁻ / T) ‖ softmax(z / T)), a mean over images (Hinton et al. 2015); 0 where both agree.

    T² keeps its gradient as large as that of a cross-entropy, whatever T is.
    """
    now, before = ((logits.float() / temperature).log_softmax(dim=1) for logits in (student, teacher))
    return temperature**2 * functional.kl_div(now, before, reduction="batchmean", log_target=True)


def sigmoid_cross_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    """Binary cross-entropy with the teacher's σ(z⁻), a mean over images and classes: each class by itself."""
    return functional.binary_cross_entropy_with_logits(student.float(), teacher.float().sigmoid())
