"""From images as bytes to logits, and how many of them are right."""

from collections.abc import Callable

import torch
from torch import Tensor

from gcab.methods.method import Method

BATCH = 500


def logits_of(
    method: Method, pixels: Tensor, device: torch.device, predict: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Logits (n, classes) on the host; `predict`: a predictor of the method's that was made before."""
    predict, normalise = predict or method.predictor(), method.setting.normalise
    with torch.inference_mode():
        return torch.cat([predict(normalise(part.to(device))).float().cpu() for part in pixels.split(BATCH)])


def share_right(logits: Tensor, labels: Tensor) -> float:
    """Per cent of images whose strongest class is theirs."""
    return float((logits.argmax(dim=1) == labels).double().mean() * 100)
