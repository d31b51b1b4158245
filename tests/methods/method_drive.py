"""Tiny tasks, and the trainer's own step to drive a method through them one batch at a time."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from gcab.data.augment import Augment, AugmentConfig
from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.methods.method import Method, grow
from gcab.model.encoder import EncoderConfig
from gcab.seeds import seeded
from gcab.training.step import Step
from gcab.training.trainer import finish

IMAGE_SIZE, WIDTH = 8, 16
UNCHANGED = AugmentConfig(crop="none", flip=False, randaugment=False)
START = Progress(torch.tensor(0), 4)


def setting(drop_path: float = 0.0) -> Setting:
    encoder = EncoderConfig(blocks=1, width=WIDTH, heads=4, mlp_ratio=2.0, patch=4, drop_path=drop_path)
    return Setting(encoder, IMAGE_SIZE, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


def stream(*sizes: int) -> list[Task]:
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [Task(i, firsts[i], tuple(f"class {firsts[i] + c}" for c in range(size))) for i, size in enumerate(sizes)]


def images_of(task: Task, count: int = 24, seed: int = 0) -> TaskImages:
    """Noise around one random image per class: something a network can learn."""
    generator = torch.Generator().manual_seed(1000 * seed + task.index)
    labels = torch.arange(count) % task.classes
    centres = torch.randint(40, 216, (task.classes, 3, IMAGE_SIZE, IMAGE_SIZE), generator=generator)
    noise = torch.randint(-20, 21, (count, 3, IMAGE_SIZE, IMAGE_SIZE), generator=generator)
    return TaskImages((centres[labels] + noise).to(torch.uint8), labels + task.first)


def made(kind: type[Method], drop_path: float = 0.0, **options: Any) -> Any:
    """A method with the same initial weights every time."""
    with seeded(1, "build"):
        return kind(setting(drop_path), kind.Options(**options))


def begun(method: Method, task: Task) -> None:
    grow(method, task, seed=1)
    method.begin_task(task)


def step_of(method: Method, augment: AugmentConfig = UNCHANGED, lr: float = 0.01) -> Step:
    learning = [parameter for parameter in method.parameters() if parameter.requires_grad]
    augmented = Augment(augment, method.setting.mean, method.setting.std)
    return Step(method.train(), torch.optim.SGD(learning, lr), augmented, torch.Generator().manual_seed(2), 0.0, False)


def batches(data: TaskImages, size: int = 8) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(data.images.split(size), data.labels.split(size), strict=True)


def trained(method: Method, task: Task, data: TaskImages, epochs: int = 2, lr: float = 0.05) -> list[dict[str, float]]:
    """All steps of a task, with random numbers of their own; the loss terms of each."""
    step = step_of(method, lr=lr)
    history = []
    with seeded(1, "steps", task.index):
        for _ in range(epochs):
            for images, labels in batches(data):
                history.append({name: float(term) for name, term in step(images, labels, START).items()})
    method.eval()
    return history


def learned(method: Method, *tasks: Task, epochs: int = 2, lr: float = 0.05) -> None:
    """Tasks from growth to end."""
    for task in tasks:
        begun(method, task)
        trained(method, task, images_of(task), epochs, lr)
        finish(method, task, images_of(task), seed=1)


def prepared(method: Method, data: TaskImages) -> Batch:
    return step_of(method).prepare(data.images, data.labels)


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def scrambled(module: nn.Module, size: float = 0.05) -> None:
    """Weights away from where they are."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def gradient(term: Tensor, method: Method) -> Tensor:
    """Of all weights that learn, as one vector."""
    learning = [parameter for parameter in method.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(term, learning, allow_unused=True, retain_graph=True)
    return torch.cat(
        [
            torch.zeros(weight.numel()) if part is None else part.flatten()
            for part, weight in zip(found, learning, strict=True)
        ]
    )


def twins(one: Method, other: Method) -> bool:
    """Whether the networks of two methods are the same bit for bit."""
    first, second = (dict(method.get_submodule("network").state_dict()) for method in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def copied(method: Method) -> Any:
    return copy.deepcopy(method)
