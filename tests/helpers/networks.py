"""Small float64 networks with every parameter away from its special starting value."""

from dataclasses import replace

import torch
from torch import nn

from gcab.methods.gcab import Gcab, GcabOptions
from gcab.model.encoder import EncoderConfig
from helpers.tasks import ENCODER, setting, tasks_of


def soften(options: GcabOptions) -> GcabOptions:
    """Gates that are neither open nor closed, so that a mask left out or put in twice shows."""
    return replace(options, network=replace(options.network, sharpest=1.5, binarise="never"))


def scramble(module: nn.Module, seed: int) -> None:
    """Give norms, biases and weights values of order one half."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + 0.1)


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
