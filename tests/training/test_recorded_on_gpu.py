"""On a GPU: a recorded step is the plain step, within the noise of bfloat16."""

import copy

import pytest
import torch

from gcab.config import resolve
from gcab.data.augment import Augment
from gcab.data.tasks import Task, TaskImages
from gcab.methods.method import Method, grow
from gcab.runs.assemble import build_method
from gcab.seeds import seeded
from gcab.training.feed import Feed
from gcab.training.recorded import RecordedSteps
from gcab.training.schedule import make_optimiser
from gcab.training.step import PlainSteps, Step
from gcab.training.trainer import finish

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
STEPS, BATCH, EPOCHS = 20, 128, 10  # 200 steps in all


def trained(
    method: Method,
    kind: type[PlainSteps] | type[RecordedSteps],
    data: TaskImages,
    bfloat16: bool,
    resident: bool = True,
) -> torch.Tensor:
    """The losses of every step: classification, sparsity, drift."""
    config = resolve("cifar100/10", "gcab")
    feed, random = Feed(data, BATCH, torch.device("cuda"), resident), torch.Generator("cuda")
    optimiser = make_optimiser(config.training, method.parameters())
    augment = Augment(config.augment, method.setting.mean, method.setting.std)
    step = Step(method.train(), optimiser, augment, random, config.training.clip, bfloat16)
    steps = kind(step, feed)
    losses = []
    for epoch in range(EPOCHS):
        random.manual_seed(epoch)
        with seeded(1, "epoch", epoch):
            losses.append(steps.run(feed.order(torch.Generator().manual_seed(epoch))).clone())
    return torch.cat(losses)


def second_task() -> tuple[Method, TaskImages]:
    """A method at the start of its second task, and that task's images."""
    config = resolve("cifar100/10", "gcab", changes={"encoder.drop_path": 0.0})  # compiled code drops other paths
    method, random = build_method(config).cuda(), torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (STEPS * BATCH, 3, 32, 32), dtype=torch.uint8, generator=random)
    for index in range(2):
        task = Task(index, 10 * index, tuple("abcdefghij"))
        data = TaskImages(images, 10 * index + torch.arange(len(images)) % 10)
        grow(method, task, config.seed)
        if index == 0:
            finish(method.eval(), task, data, config.seed)
    method.begin_task(task)
    return method, data


def test_streamed_images_give_the_losses_of_resident_ones() -> None:
    method, data = second_task()
    resident = trained(copy.deepcopy(method), RecordedSteps, data, bfloat16=True)
    streamed = trained(method, RecordedSteps, data, bfloat16=True, resident=False)
    assert (streamed - resident)[:, :2].abs().max() <= 2e-3 * resident[:, :2].abs().max()
    assert torch.allclose(streamed[:5], resident[:5], rtol=1e-4)  # one wrong batch would show at once


def test_losses_agree_step_by_step_over_200_steps() -> None:
    method, data = second_task()
    plain = trained(copy.deepcopy(method), PlainSteps, data, bfloat16=True)
    exact = trained(copy.deepcopy(method), PlainSteps, data, bfloat16=False)
    recorded = trained(method, RecordedSteps, data, bfloat16=True)
    apart, noise = (recorded - exact).abs(), (plain - exact).abs()
    assert (apart[:, :2] <= 2e-3 * exact[:, :2]).all()  # classification and sparsity
    assert apart[:, 2].mean() <= 2 * noise[:, 2].mean() + 1e-3  # the drift term is a norm near 0: noise moves it most
