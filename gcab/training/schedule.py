"""Learning rate over a task's epochs, and the optimiser it drives."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from gcab.config import TrainingConfig


def learning_rate(config: TrainingConfig, epoch: int) -> float:
    """Linear warm-up from `warmup_lr`, then a cosine over all epochs down to `min_lr`; restarted for every task."""
    epoch = max(0, epoch - config.lr_lag)
    if epoch < config.warmup_epochs:
        return config.warmup_lr + (config.lr - config.warmup_lr) * epoch / config.warmup_epochs
    cosine = 0.5 * (1 + math.cos(math.pi * epoch / config.epochs))
    return config.min_lr + (config.lr - config.min_lr) * cosine


def make_optimiser(config: TrainingConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Fused, and on a GPU with a learning rate that a captured step reads from device memory."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    device, lr = learning[0].device, rate(config.lr, learning[0].device)
    if config.optimiser == "sgd":
        return torch.optim.SGD(learning, lr=lr, momentum=0.9, weight_decay=config.weight_decay, fused=True)
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(learning, lr=lr, weight_decay=config.weight_decay, fused=True, capturable=device.type == "cuda")


def rate(lr: float, device: torch.device) -> float | torch.Tensor:
    """A learning rate where a captured step can read it."""
    return torch.tensor(lr, device=device) if device.type == "cuda" else lr


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """In place where the rate is a tensor, so that a captured step sees it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def restore_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state but keep the rates where they live: a loaded one would be a tensor on the host."""
    rates = [group["lr"] for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate
