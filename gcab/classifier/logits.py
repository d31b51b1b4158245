"""From uint8 images to logits, and their accuracy."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gcab.data.hold_out import alone
from gcab.data.tasks import TaskImages
from gcab.methods.method import Method

BATCH = 500
ENOUGH = 300  # training images whose leave-one-out logits are computed


class HeldOutLogits(NamedTuple):
    """Logits of images as if they had not been learned: held out, or leave-one-out."""

    logits: Tensor  # (n, classes)
    labels: Tensor


def logits_of(
    method: Method, pixels: Tensor, device: torch.device, predict: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Logits (n, classes) on the CPU; `predict`: the method's predictor, if it was made before."""
    predict, normalise = predict or method.predictor(), method.setting.normalise
    with torch.inference_mode():
        return torch.cat([predict(normalise(part.to(device))).float().cpu() for part in pixels.split(BATCH)])


def can_be_left_out(images: TaskImages) -> bool:
    """Whether most have no near-duplicate: leave-one-out is no test of the images of a burst."""
    return 2 * int(alone(images.images, images.labels).sum()) >= len(images.labels)


def held_out_logits(method: Method, held_out: TaskImages, device: torch.device) -> HeldOutLogits:
    """Logits of held-out images: leave-one-out logits where the method has learned them at the end."""
    logits = method.left_out(held_out, trained=False) if can_be_left_out(held_out) else None
    return HeldOutLogits(
        logits_of(method, held_out.images, device) if logits is None else logits.cpu(), held_out.labels
    )


def all_held_out_logits(method: Method, train: TaskImages, held_out: HeldOutLogits | None) -> HeldOutLogits | None:
    """Held-out logits, joined by leave-one-out logits of training images without near-duplicates, if possible."""
    places = alone(train.images, train.labels).nonzero().flatten()
    if not len(places):
        return held_out
    some = places[torch.linspace(0, len(places) - 1, min(ENOUGH, len(places))).long()]
    logits = method.left_out(train.where(some), trained=True)
    if logits is None:
        return held_out
    parts = [HeldOutLogits(logits.cpu(), train.labels[some]), *([] if held_out is None else [held_out])]
    return HeldOutLogits(torch.cat([part.logits for part in parts]), torch.cat([part.labels for part in parts]))


def accuracy_of(logits: Tensor, labels: Tensor) -> float:
    """Accuracy in per cent."""
    return float((logits.argmax(dim=1) == labels).double().mean() * 100)
