"""A stream of tiny tasks and the trainer's loop in a dozen lines, so that a method can be driven on its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.gradients import Gradients
from gcab.methods.method import Method
from gcab.model.encoder import EncoderConfig
from gcab.model.network import GatedNetwork
from gcab.model.options import NetworkOptions

IMAGE_SIZE, TOKENS, WIDTH = 8, 4, 16
SETTING = Setting(
    EncoderConfig(blocks=2, width=WIDTH, heads=4, mlp_ratio=2.0, patch=4, drop_path=0.1),
    IMAGE_SIZE,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
)

MakeOptimiser = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
OPTIMISERS: dict[str, MakeOptimiser] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9, weight_decay=0.05),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05, weight_decay=0.05),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1),
}


def gcab_options(profile: str = "official", network: dict[str, Any] | None = None, **changes: Any) -> GcabOptions:
    """A profile's options with changes."""
    settings: dict[str, Any] = {}
    of_network: dict[str, Any] = {}
    for key, value in Gcab.profiles[profile].items():
        path = key.split(".")
        if path[0] == "options":
            (of_network if path[1] == "network" else settings)[path[-1]] = value
    return GcabOptions(**(settings | changes), network=NetworkOptions(**(of_network | (network or {}))))


def isolating_options() -> dict[str, GcabOptions]:
    """Option sets that promise finished tasks an unchanged decoder.

    The paper profile itself is not among them: with gates σ(s_max e) that are never binarised, a unit whose embedding
    is near zero is used a little, so the weights behind it are only slowed down (0 < M < 1) and a finished task still
    sees a little of units it does not own. With zeros and ones the text's equations keep the promise as well.
    """
    return {
        "official": gcab_options("official"),
        "extended": gcab_options("extended"),
        "official, binarised at the end": gcab_options("official", {"binarise": "end"}),
        "paper, binarised at the end": gcab_options("paper", {"binarise": "end"}),
        "paper, binarised at the next task": gcab_options("paper", {"binarise": "next"}),
    }


def stream(*sizes: int) -> list[Task]:
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [Task(i, firsts[i], tuple(f"class {firsts[i] + c}" for c in range(size))) for i, size in enumerate(sizes)]


def images_of(task: Task, count: int = 12) -> TaskImages:
    """Noise around one random image per class: something a network can learn."""
    generator = torch.Generator().manual_seed(1000 + task.index)
    labels = torch.arange(count) % task.classes
    centres = torch.randint(40, 216, (task.classes, 3, IMAGE_SIZE, IMAGE_SIZE), generator=generator)
    noise = torch.randint(-20, 21, (count, 3, IMAGE_SIZE, IMAGE_SIZE), generator=generator)
    return TaskImages((centres[labels] + noise).to(torch.uint8), labels + task.first)


def new_gcab(options: GcabOptions, seed: int = 0) -> Gcab:
    torch.manual_seed(seed)
    return Gcab(SETTING, options)


def train(method: Method, task: Task, make_optimiser: MakeOptimiser, epochs: int = 2, steps: int = 3) -> list[float]:
    """Train on a task and return the mean loss of each epoch.

    The optimiser is given every parameter, frozen ones too, and weight decay on all: freezing must not rest on it.
    """
    data = images_of(task)
    optimiser = make_optimiser(list(method.parameters()))
    method.train()
    means = []
    for _ in range(epochs):
        losses = []
        for step in range(steps):
            progress = Progress(torch.tensor(step), steps)
            picked = torch.arange(step, len(data.labels), steps)
            optimiser.zero_grad()
            batch = method.batch(Batch(SETTING.normalise(data.images[picked]), data.labels[picked]))
            terms = method.loss(batch, progress)
            loss = torch.stack(list(terms.values())).sum()
            loss.backward()
            method.before_step(progress, batch, Gradients([*method.parameters()], lambda loss: loss()))
            torch.nn.utils.clip_grad_norm_(method.parameters(), 10.0)
            optimiser.step()
            method.after_step(progress, batch)
            losses.append(loss.item())
        means.append(sum(losses) / steps)
    method.eval()
    return means


def learn(method: Method, task: Task, make_optimiser: MakeOptimiser, epochs: int = 2) -> list[float]:
    """One task from growth to end."""
    method.grow(task)
    method.begin_task(task)
    means = train(method, task, make_optimiser, epochs)
    method.end_task(task, images_of(task))
    return means


def fixed_features(count: int = 6) -> Tensor:
    return torch.randn(count, TOKENS, WIDTH, generator=torch.Generator().manual_seed(7))


@torch.no_grad()
def head_logits(network: GatedNetwork, tasks: int) -> list[Tensor]:
    """What the decoder and the heads of the first tasks say about fixed features."""
    features = fixed_features()
    logits = []
    for task in range(tasks):
        masks = network.masks(task)
        logits.append(network.classify(task, network.decode(task, features, masks), masks))
    return logits


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def with_network(options: GcabOptions, **changes: Any) -> GcabOptions:
    return replace(options, network=replace(options.network, **changes))
