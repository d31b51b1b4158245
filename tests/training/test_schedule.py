"""The learning rate of every epoch, and what the optimiser is given."""

import copy
import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from gcab.config import resolve
from gcab.fast.graphs import restore_optimiser, set_learning_rate
from gcab.training.schedule import TrainingConfig, learning_rate, make_optimiser


def test_warm_up_then_cosine_by_hand() -> None:
    config = TrainingConfig(epochs=10, lr=1.0, warmup_epochs=4, warmup_lr=0.2, min_lr=0.1)
    rates = [learning_rate(config, epoch) for epoch in range(10)]
    assert rates[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert rates[4] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + 0.309016994))  # cos 72°
    assert rates[5] == pytest.approx(0.55)  # cos 90°
    assert rates[8] == pytest.approx(0.1 + 0.9 * 0.5 * (1 - 0.809016994))  # cos 144°
    assert rates[9] == pytest.approx(0.1220245)  # cos 162°: min_lr would be epoch 10
    assert rates[4:] == sorted(rates[4:], reverse=True)


def test_a_rate_that_runs_behind_starts_with_its_first_value_twice() -> None:
    config = TrainingConfig(epochs=10, lr=1.0, warmup_epochs=4, warmup_lr=0.2, min_lr=0.1, lr_lag=1)
    rates = [learning_rate(config, epoch) for epoch in range(10)]
    assert rates[:5] == pytest.approx([0.2, 0.2, 0.4, 0.6, 0.8])
    on_time = [learning_rate(replace(config, lr_lag=0), epoch) for epoch in range(10)]
    assert rates == [on_time[0], *on_time[:-1]]


@pytest.mark.parametrize("method", ["gcab", "gcab-fast", "finetune", "joint", "er"])
def test_the_authors_schedule(method: str) -> None:
    """Five warm-up epochs, then the cosine, whose every value comes an epoch late; ours come in time."""
    theirs = resolve("cifar100/10", method, "official").training
    ours = replace(theirs, lr_lag=0)
    assert ours == TrainingConfig()
    for config, lag in ((theirs, 1), (ours, 0)):
        assert learning_rate(config, 0) == pytest.approx(1e-6)
        assert learning_rate(config, 1 + lag) == pytest.approx(1e-6 + (1.25e-4 - 1e-6) / 5)
        assert learning_rate(config, 250 + lag) == pytest.approx((1.25e-4 + 1e-5) / 2)
        assert learning_rate(config, 499) == pytest.approx(1e-5, rel=1e-3)


def test_the_papers_rate_is_constant() -> None:
    config = resolve("cifar100/10", "gcab", "paper").training
    assert {learning_rate(config, epoch) for epoch in range(config.epochs)} == {1e-4}


def test_no_epoch_has_a_negative_or_infinite_rate() -> None:
    for warmup, lag in product((0, 1, 3, 50), (0, 1, 9)):
        config = TrainingConfig(epochs=3, warmup_epochs=warmup, min_lr=0.0, lr_lag=lag)
        assert all(math.isfinite(rate) and rate >= 0 for rate in (learning_rate(config, e) for e in range(3)))


@pytest.mark.parametrize(
    ("name", "kind"), [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)]
)
def test_the_optimiser_holds_only_what_learns(name: str, kind: type[torch.optim.Optimizer]) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    model[0].requires_grad_(False)
    config = TrainingConfig(optimiser=name, lr=0.5, weight_decay=0.25)  # type: ignore[arg-type]
    optimiser = make_optimiser(config, model.parameters())
    assert type(optimiser) is kind
    [group] = optimiser.param_groups
    assert [id(parameter) for parameter in group["params"]] == [id(parameter) for parameter in model[1].parameters()]
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
    assert group.get("momentum", 0.9) == 0.9


def test_the_rate_of_an_epoch_replaces_the_last() -> None:
    optimiser = make_optimiser(TrainingConfig(), nn.Linear(2, 2).parameters())
    set_learning_rate(optimiser, 0.125)
    assert [group["lr"] for group in optimiser.param_groups] == [0.125]
    rate = torch.tensor(1.0)
    optimiser.param_groups[0]["lr"] = rate  # as on a GPU, where a recorded step reads it
    set_learning_rate(optimiser, 0.25)
    assert optimiser.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


def test_a_restored_optimiser_keeps_its_rate_where_a_recorded_step_reads_it() -> None:
    optimiser = make_optimiser(TrainingConfig(), nn.Linear(2, 2).parameters())
    saved = copy.deepcopy(optimiser.state_dict())
    rate = torch.tensor(1.0)
    optimiser.param_groups[0]["lr"] = rate  # as on a GPU
    restore_optimiser(optimiser, saved)
    assert optimiser.param_groups[0]["lr"] is rate


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_a_restored_optimiser_takes_the_same_next_step(name: str) -> None:
    config = TrainingConfig(optimiser=name, lr=0.1)  # type: ignore[arg-type]
    torch.manual_seed(1)
    model = nn.Linear(3, 3)
    twin = nn.Linear(3, 3)
    optimiser = make_optimiser(config, model.parameters())

    def step(module: nn.Linear, by: torch.optim.Optimizer) -> None:
        for parameter in module.parameters():
            parameter.grad = parameter.detach() + 1
        by.step()

    step(model, optimiser)
    twin.load_state_dict(model.state_dict())
    restored = make_optimiser(config, twin.parameters())
    restore_optimiser(restored, copy.deepcopy(optimiser.state_dict()))
    step(model, optimiser)
    step(twin, restored)
    assert torch.equal(model.weight, twin.weight)
    if name != "sgd":  # without the memory of the first step the second is another
        forgetful = make_optimiser(config, twin.parameters())
        step(model, optimiser)
        step(twin, forgetful)
        assert not torch.equal(model.weight, twin.weight)
