"""A tiny stream of tasks and the trainer's own loop over it, to look at a method at any moment."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gcab.data.augment import Augment, AugmentConfig
from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.methods.method import Method, grow
from gcab.methods.registry import method_named
from gcab.model.encoder import EncoderConfig
from gcab.training.schedule import TrainingConfig
from gcab.training.trainer import Trainer, finish

CPU = torch.device("cpu")
SIDE, WIDTH = 8, 16
SETTING = Setting(
    EncoderConfig("convit", blocks=2, width=WIDTH, heads=4, mlp_ratio=2.0, patch=4, drop_path=0.0),
    SIDE,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
)
AUGMENT = Augment(AugmentConfig(crop="none", flip=False, randaugment=False), SETTING.mean, SETTING.std)
TRAINING = TrainingConfig(epochs=2, batch_size=6, lr=2e-3, warmup_epochs=0)


def tasks(*sizes: int) -> list[Task]:
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [Task(i, firsts[i], tuple(f"class {firsts[i] + c}" for c in range(size))) for i, size in enumerate(sizes)]


def images_of(task: Task, count: int = 12) -> TaskImages:
    """Noise around one random image per class: something a network can learn."""
    random = torch.Generator().manual_seed(100 + task.index)
    labels = torch.arange(count) % task.classes
    centres = torch.randint(40, 216, (task.classes, 3, SIDE, SIDE), generator=random)
    noise = torch.randint(-30, 31, (count, 3, SIDE, SIDE), generator=random)
    return TaskImages((centres[labels] + noise).to(torch.uint8), labels + task.first)


def build(name: str, encoder: dict[str, Any] | None = None, **options: Any) -> Any:
    """A method with these options, which has learned nothing yet."""
    torch.manual_seed(0)
    kind = method_named(name)
    setting = replace(SETTING, encoder=replace(SETTING.encoder, **(encoder or {})))
    return kind(setting, kind.Options(**options)).eval()


def begin(method: Method, task: Task) -> None:
    grow(method, task, seed=1)
    method.begin_task(task)


def fit(method: Method, task: Task, training: TrainingConfig = TRAINING) -> None:
    Trainer(method, training, AUGMENT, CPU, seed=1).fit(task, images_of(task), lambda _: None)


def end(method: Method, task: Task) -> None:
    finish(method, task, images_of(task), 1, augment=AUGMENT)


def learn(method: Method, task: Task, training: TrainingConfig = TRAINING) -> None:
    begin(method, task)
    fit(method, task, training)
    end(method, task)


def batch_of(method: Method, task: Task, count: int = 12) -> Batch:
    """What a step would learn from, without augmentation."""
    data = images_of(task, count)
    with torch.no_grad():
        return method.batch(Batch(SETTING.normalise(data.images), data.labels, count))


def terms(method: Method, batch: Batch) -> dict[str, Tensor]:
    return method.loss(batch, Progress(torch.tensor(0), 1))


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def move(module: nn.Module, by: float = 0.1) -> None:
    """Some other weights."""
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=random))


def largest_gradient(method: Method, value: Tensor) -> float:
    """Of any weight, absolute."""
    learning = [parameter for parameter in method.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(value, learning, allow_unused=True, retain_graph=True)
    return max(float(part.abs().max()) for part in found if part is not None)
