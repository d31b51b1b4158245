"""Data-parallel training with the results of a single process: DistributedDataParallel around a method."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gcab.data.augment import Augment, Choices
from gcab.data.mixing import Boxes
from gcab.data.randaugment import Layer
from gcab.data.tasks import Batch, Progress
from gcab.methods.method import Method
from gcab.parallel.launch import Launch
from gcab.parallel.ranks import rows, world

Loss = Callable[[Batch, Progress], dict[str, Tensor]]
LONGEST_WAIT = timedelta(hours=12)  # for the first process to decode a data set; a lost process is noticed at once


@contextmanager
def process_group(launch: Launch, device: torch.device) -> Iterator[None]:
    """Join the processes started together, for as long as the block lasts."""
    if launch.world == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=LONGEST_WAIT)
    yield  # after an error the others may never answer, so the group ends with the process
    gc.collect()
    distributed.destroy_process_group()


class Objective(nn.Module):
    """A method's loss as a module that has the trainable parameters only, whose gradients the ranks exchange."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.learning = nn.ParameterList(parameter for parameter in method.parameters() if parameter.requires_grad)
        self.loss = method.loss

    def forward(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        return self.loss(batch, progress)


def shared_loss(method: Method) -> Loss:
    """The loss of this rank's images, whose gradients come out averaged over all ranks."""
    if world() == 1:
        return method.loss
    gc.collect()  # the wrapper of an earlier task must be gone: it would average, too
    return DistributedDataParallel(Objective(method), static_graph=True)  # static: a parameter may go unused


class SharedAugment(Augment):
    """Draws augmentations for the global batch on every rank and applies those of this rank's rows."""

    def draw(self, batch: int, height: int, width: int, generator: torch.Generator) -> Choices:
        choices = super().draw(batch * world(), height, width, generator)
        layers = tuple(Layer(*map(rows, layer)) for layer in choices.layers)
        return Choices(rows(choices.box), rows(choices.flipped), layers)

    def draw_boxes(self, batch: int, generator: torch.Generator) -> Boxes:
        return Boxes(*map(rows, super().draw_boxes(batch * world(), generator)))
