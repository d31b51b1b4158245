"""A short training loop for the end of a task, on images that a method has stored; without stochastic depth."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from gcab.data.augment import Augment
from gcab.data.tasks import OnProgress, Setting, TaskImages, ignore
from gcab.methods.modes import learning
from gcab.model.exact import in_double


def batches_of(
    data: TaskImages, batch_size: int, steps: int, setting: Setting, augment: Augment | None, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` batches, shuffled anew in every epoch; augmented where `augment` is given, else only normalised."""
    random = torch.Generator(in_double(device)).manual_seed(int(torch.randint(2**62, ())))
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if not len(order):
            order = torch.randperm(len(data.labels))
        pick, order = order[:batch_size], order[batch_size:]
        images, labels = data.images[pick.to(data.images.device)], data.labels[pick.to(data.labels.device)]
        images, labels = images.to(device), labels.to(device)
        yield (setting.normalise(images) if augment is None else augment(images, random)), labels


def train_shortly(
    parameters: Sequence[nn.Parameter],
    make_optimiser: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer],
    batches: Iterator[tuple[Tensor, Tensor]],
    loss: Callable[[Tensor, Tensor], Tensor],
    watch: OnProgress = ignore,
    steps: int = 1,
) -> None:
    """Minimise a loss of images and labels over these parameters, frozen ones included."""
    with learning(parameters), torch.enable_grad():
        optimiser = make_optimiser(parameters)
        for number, (images, labels) in enumerate(batches):
            optimiser.zero_grad()
            gradients = torch.autograd.grad(loss(images, labels), parameters, allow_unused=True)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimiser.step()
            watch((number + 1) / steps)
