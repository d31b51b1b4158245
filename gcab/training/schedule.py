"""Learning rate over a task's epochs, and the optimiser it drives."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from gcab.config import TrainingConfig


def learning_rate(config: TrainingConfig, epoch: int) -> float:
    """Linear warm-up from `warmup_lr`, then a cosine over all epochs down to `min_lr`; restarted for every task."""
    if epoch < config.warmup_epochs:
        return config.warmup_lr + (config.lr - config.warmup_lr) * epoch / config.warmup_epochs
    cosine = 0.5 * (1 + math.cos(math.pi * epoch / config.epochs))
    return config.min_lr + (config.lr - config.min_lr) * cosine


def make_optimiser(config: TrainingConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    if config.optimiser == "sgd":
        return torch.optim.SGD(learning, lr=config.lr, momentum=0.9, weight_decay=config.weight_decay)
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(learning, lr=config.lr, weight_decay=config.weight_decay)
