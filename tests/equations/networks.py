"""Small float64 networks with every parameter away from its special starting value."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from gcab.data.tasks import Setting, Task
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.model.encoder import EncoderConfig
from gcab.model.options import NetworkOptions

IMAGE_SIZE = 8
ENCODER = EncoderConfig(kind="convit", blocks=2, width=16, heads=4, mlp_ratio=2.0, patch=4, drop_path=0.0)


def setting(encoder: EncoderConfig = ENCODER) -> Setting:
    return Setting(encoder, IMAGE_SIZE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


def profile_options(profile: str) -> GcabOptions:
    """The options of a profile, from its dotted keys."""
    options: dict[str, Any] = {}
    network: dict[str, Any] = {}
    for key, value in Gcab.profiles[profile].items():
        part, *path = key.split(".")
        if part == "options":
            (network if path[0] == "network" else options)[path[-1]] = value
    return GcabOptions(**options, network=NetworkOptions(**network))


def soften(options: GcabOptions) -> GcabOptions:
    """Gates that are neither open nor closed, so that a mask left out or put in twice shows."""
    return replace(options, network=replace(options.network, sharpest=1.5, binarise="never"))


def scramble(module: nn.Module, seed: int) -> None:
    """Give norms, biases and weights values of order one half."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + 0.1)


def tasks_of(*sizes: int) -> list[Task]:
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [Task(i, firsts[i], tuple(f"class {firsts[i] + c}" for c in range(size))) for i, size in enumerate(sizes)]


def grown(options: GcabOptions, *sizes: int, encoder: EncoderConfig = ENCODER) -> Gcab:
    """A method that has ended all tasks but the newest, whose training begins."""
    torch.manual_seed(3)
    method = Gcab(setting(encoder), options)
    for task in tasks_of(*sizes):
        if task.index > 0:
            method.network.finish()
        method.grow(task)
    scramble(method.network, seed=11)
    return method.double()
