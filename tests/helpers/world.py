"""The trainer's loop in a dozen lines, so that a method can be driven on its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gcab.data.tasks import Batch, Progress, Task
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.gradients import Gradients
from gcab.methods.method import Method
from gcab.model.network import GatedNetwork
from helpers.tasks import ENCODER, TOKENS, WIDTH, gcab_options, images_of, setting

SETTING = setting(replace(ENCODER, drop_path=0.1))

MakeOptimiser = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
OPTIMISERS: dict[str, MakeOptimiser] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9, weight_decay=0.05),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05, weight_decay=0.05),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1),
}


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
