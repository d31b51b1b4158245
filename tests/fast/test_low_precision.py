"""bfloat16 copies made all at once: the values and gradients of autocast, and nothing left behind."""

import copy

import pytest
import torch
from torch import nn

from gcab.config import resolve
from gcab.data.tasks import Batch, Progress, Task, TaskImages
from gcab.fast.low_precision import CastAll, LowPrecision, exchanged, linear_weights, lowered
from gcab.methods.method import Method, grow
from gcab.runs.assemble import build_method

STILL = {"encoder.width": 16, "encoder.blocks": 2, "encoder.drop_path": 0.0}
PROGRESS = Progress(torch.tensor(3), 10)


def in_its_second_task(name: str) -> Method:
    config = resolve("digits/5", name, changes=STILL)
    method = build_method(config)
    images = torch.randint(0, 256, (8, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for index in range(2):
        task = Task(index, 2 * index, ("a", "b"))
        grow(method, task, config.seed)
        if index == 0:
            method.end_task(task, TaskImages(images, torch.arange(8) % 2))
    method.begin_task(task)
    return method.train()


def losses_and_gradients(method: Method, low: LowPrecision | None) -> dict[str, torch.Tensor]:
    images = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    labels = 2 + torch.arange(8) % 2
    with torch.autocast("cpu", torch.bfloat16):
        if low is None:
            terms = method.loss(method.batch(Batch(images, labels)), PROGRESS)
        else:
            with exchanged(low.fixed):
                batch = method.batch(Batch(images, labels))
                with low.of_learning():
                    terms = method.loss(batch, PROGRESS)
    torch.stack([term.float() for term in terms.values()]).sum().backward()
    found = {f"loss of {name}": term.detach().float() for name, term in terms.items()}
    return found | {name: value.grad for name, value in method.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("name", ["gcab", "finetune"])
def test_copies_give_the_losses_and_gradients_of_autocast(name: str) -> None:
    method = in_its_second_task(name)
    twin = copy.deepcopy(method)
    expected = losses_and_gradients(method, None)
    found = losses_and_gradients(twin, LowPrecision(twin))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert (found[key] - value).norm() <= 2e-2 * value.norm() + 1e-6, key
        assert found[key].dtype == torch.float32, key


def test_afterwards_the_modules_hold_their_own_parameters_again() -> None:
    method = in_its_second_task("gcab")
    before = dict(method.named_parameters())
    low = LowPrecision(method)
    with exchanged(low.fixed), low.of_learning():
        kinds = {
            weight.dtype for layer in method.modules() if isinstance(layer, nn.Linear) for weight in [layer.weight]
        }
        assert kinds == {torch.bfloat16}
    after = dict(method.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is parameter for name, parameter in before.items())


def test_also_after_an_error() -> None:
    layer = nn.Linear(2, 2)
    weight = layer.weight
    with pytest.raises(ZeroDivisionError), exchanged(lowered(linear_weights(layer))):
        _ = 1 / 0
    assert layer.weight is weight


def test_a_weight_without_a_gradient_keeps_none() -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    low, _ = CastAll.apply(used, unused)  # type: ignore[no-untyped-call]
    low.float().sum().backward()
    assert used.grad is not None
    assert used.grad.dtype == torch.float32
    assert unused.grad is None
