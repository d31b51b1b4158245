"""How long a task is trained, its learning rate over the epochs, and the optimiser that this drives."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from gcab.errors import GcabError, check_options
from gcab.fast.graphs import recordable_rate


@dataclass(frozen=True)
class TrainingConfig:
    """Defaults are the authors' code but for `lr_lag`: 5e-4 * 128 / 512 at its peak, restarted for every task."""

    epochs: int = 500  # per task, section "Experimental Setup"
    first_task: float = 1.0  # times as many epochs for the first: what it teaches the encoder, all others build on
    held_out: float = 0.0  # share of each class that is not trained on but judges parts of the method at a task's end
    batch_size: int = 128  # same section
    optimiser: Literal["adamw", "adam", "sgd"] = "adamw"  # text: Adam
    momentum: float = 0.9  # of sgd
    schedule: Literal["cosine", "constant"] = "cosine"  # of the learning rate after the warm-up
    lr: float = 1.25e-4  # text: 1e-4
    warmup_epochs: int = 5
    warmup_lr: float = 1e-6
    min_lr: float = 1e-5  # where the cosine ends
    lr_lag: int = 0  # epochs that the rate runs behind; authors: 1, their schedule hears of an epoch at its end
    weight_decay: float = 1e-6
    clip: float = 10000.0  # largest gradient norm; 0: no clipping
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on a GPU, float32 on a CPU

    def caution(self) -> str | None:
        """A warning about settings that are valid but hardly intended."""
        if self.warmup_epochs <= max(0, self.epochs - 1 - self.lr_lag):
            return None
        epochs = f"{self.epochs} epochs a task are" if self.epochs != 1 else "one epoch a task is"
        return (
            f"the {epochs} all warm-up (training.warmup_epochs {self.warmup_epochs}) and hardly "
            "teach anything: lower it for so short a run."
        )

    def epochs_of(self, task: int) -> int:
        """The epochs of a task, the first of which is number 0."""
        return max(1, round(self.first_task * self.epochs)) if task == 0 else self.epochs

    def in_bfloat16(self, on_gpu: bool) -> bool:
        return self.precision == "bfloat16" or (self.precision == "auto" and on_gpu)

    def __post_init__(self) -> None:
        if not 0 <= self.held_out <= 0.5:
            raise GcabError(f"training.held_out is {self.held_out}: give a share from 0 to 0.5.")
        not_negative = ("warmup_epochs", "warmup_lr", "min_lr", "lr_lag", "weight_decay", "clip", "momentum")
        check_options(self, ("epochs", "first_task", "batch_size", "lr"), not_negative, section="training")


def learning_rate(config: TrainingConfig, epoch: int) -> float:
    """Linear warm-up from `warmup_lr`, then a cosine over all epochs down to `min_lr`, or `lr` throughout."""
    epoch = max(0, epoch - config.lr_lag)
    if epoch < config.warmup_epochs:
        return config.warmup_lr + (config.lr - config.warmup_lr) * epoch / config.warmup_epochs
    if config.schedule == "constant":
        return config.lr
    cosine = 0.5 * (1 + math.cos(math.pi * epoch / config.epochs))
    return config.min_lr + (config.lr - config.min_lr) * cosine


def make_optimiser(config: TrainingConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Fused, and on a GPU with a learning rate that a recorded step reads from device memory."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    device, lr = learning[0].device, recordable_rate(config.lr, learning[0].device)
    if config.optimiser == "sgd":
        return torch.optim.SGD(learning, lr=lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True)
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(learning, lr=lr, weight_decay=config.weight_decay, fused=True, capturable=device.type == "cuda")
