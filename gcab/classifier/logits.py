"""From images as bytes to logits, and how many of them are right."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gcab.data.hold_out import alone
from gcab.data.tasks import TaskImages
from gcab.methods.method import Method

BATCH = 500
ENOUGH = 300  # learned images that are asked about


class Said(NamedTuple):
    """What a method says about images as if it had not learned them."""

    logits: Tensor  # (n, classes)
    labels: Tensor


def logits_of(
    method: Method, pixels: Tensor, device: torch.device, predict: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Logits (n, classes) on the host; `predict`: a predictor of the method's that was made before."""
    predict, normalise = predict or method.predictor(), method.setting.normalise
    with torch.inference_mode():
        return torch.cat([predict(normalise(part.to(device))).float().cpu() for part in pixels.split(BATCH)])


def can_be_left_out(images: TaskImages) -> bool:
    """Whether most are alone: what was learned of a burst gives away each image of it."""
    return 2 * int(alone(images.images, images.labels).sum()) >= len(images.labels)


def said_held_out(method: Method, held_out: TaskImages, device: torch.device) -> Said:
    """About held-out images, which it has learned at last if they can be left out."""
    logits = method.left_out(held_out, trained=False) if can_be_left_out(held_out) else None
    return Said(logits_of(method, held_out.images, device) if logits is None else logits.cpu(), held_out.labels)


def said_of_all(method: Method, train: TaskImages, held_out: Said | None) -> Said | None:
    """About the held-out and the other images of a task, where it can tell; without those that have neighbours."""
    places = alone(train.images, train.labels).nonzero().flatten()
    if not len(places):
        return held_out
    some = places[torch.linspace(0, len(places) - 1, min(ENOUGH, len(places))).long()]
    logits = method.left_out(train.where(some), trained=True)
    if logits is None:
        return held_out
    parts = [Said(logits.cpu(), train.labels[some]), *([] if held_out is None else [held_out])]
    return Said(torch.cat([part.logits for part in parts]), torch.cat([part.labels for part in parts]))


def share_right(logits: Tensor, labels: Tensor) -> float:
    """Per cent of images whose strongest class is theirs."""
    return float((logits.argmax(dim=1) == labels).double().mean() * 100)
