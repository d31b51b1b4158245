"""The loop: what it asks of a method and when, what it reports, and when it stops."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.counting_method import SETTING, CountingMethod
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gcab.config import resolve
from gcab.data.augment import Augment, AugmentConfig, Choices
from gcab.data.tasks import Batch, Progress, Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.gradients import Gradients
from gcab.methods.method import grow
from gcab.parallel.devices import suitable_threads
from gcab.training.schedule import TrainingConfig, make_optimiser
from gcab.training.trainer import Epoch, HalfwayTask, Trainer, finish, require_finite

CPU = torch.device("cpu")
FIRST, TASK = Task(0, 0, ("a", "b")), Task(1, 2, ("c", "d"))
PLAIN = AugmentConfig(crop="none", flip=False, randaugment=False)
CONFIG = TrainingConfig(epochs=2, batch_size=4, optimiser="sgd", lr=0.1, warmup_epochs=0, min_lr=0.1, clip=0.0)


def data_of(count: int = 10) -> TaskImages:
    numbers = torch.arange(count)
    return TaskImages(numbers.to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 2, 2), 2 + numbers % 2)


def trained(
    method: CountingMethod,
    config: TrainingConfig = CONFIG,
    seed: int = 1,
    halfway: HalfwayTask | None = None,
    task: Task = TASK,
) -> tuple[Trainer, list[Epoch]]:
    trainer = Trainer(method, config, Augment(PLAIN, SETTING.mean, SETTING.std), CPU, seed)
    epochs: list[Epoch] = []
    trainer.fit(task, data_of(), epochs.append, halfway)
    return trainer, epochs


def test_a_step_is_replay_loss_before_update_after() -> None:
    method = CountingMethod()
    trained(method, replace(CONFIG, epochs=1))
    assert method.calls == [
        *("replay 4", "loss", "before 0", "after 0"),
        *("replay 4", "loss", "before 1", "after 1"),
    ]
    assert method.progress == [(0, 2), (1, 2)]
    assert not method.training


def test_the_weights_move_between_before_and_after() -> None:
    """GCAB remembers its weights before the optimiser and takes back after it what finished tasks forbid."""
    seen: list[tuple[str, float]] = []

    class Looking(CountingMethod):
        def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
            seen.append(("loss", self.weight.item()))
            return super().loss(batch, progress)

        def before_step(self, progress: Progress, batch: Batch, gradients: Gradients) -> None:
            super().before_step(progress, batch, gradients)
            seen.append(("before", self.weight.item()))

        def after_step(self, progress: Progress, batch: Batch) -> None:
            super().after_step(progress, batch)
            seen.append(("after", self.weight.item()))

    trained(Looking())
    moments, weights = zip(*seen, strict=True)
    assert moments == ("loss", "before", "after") * 4
    for loss, before, after in zip(weights[::3], weights[1::3], weights[2::3], strict=True):
        assert loss == before != after
    assert weights[2:-1:3] == weights[3::3]


def test_replayed_images_join_the_batch() -> None:
    stored = TaskImages(torch.full((3, 3, 2, 2), 200, dtype=torch.uint8), torch.tensor([0, 1, 0]))
    method = CountingMethod(stored)
    trained(method, replace(CONFIG, epochs=1))
    for batch in method.batches:
        assert batch.labels.tolist()[4:] == [0, 1, 0]
        assert torch.allclose(batch.images[4:], torch.tensor(200.0))
        assert len(batch.images) == 7


def test_an_epoch_reports_the_mean_of_each_term() -> None:
    method = CountingMethod()
    _, epochs = trained(method)
    assert [(epoch.number, epoch.steps, epoch.task, epoch.lr) for epoch in epochs] == [
        (1, 2, TASK, 0.1),
        (2, 2, TASK, 0.1),
    ]
    weight, velocity, expected = 0.0, 0.0, []
    for batch in method.batches:  # stochastic gradient descent with momentum 0.9 by hand
        target = float(batch.images.mean())
        expected.append(((weight - target) ** 2, 0.5 * abs(weight)))
        sign = (weight > 0) - (weight < 0)
        velocity = 0.9 * velocity + 2 * (weight - target) + 0.5 * sign + 1e-6 * weight
        weight -= 0.1 * velocity
    for epoch, (first, second) in zip(epochs, (expected[:2], expected[2:]), strict=True):
        assert epoch.losses["classification"] == pytest.approx((first[0] + second[0]) / 2, rel=1e-5)
        assert epoch.losses["penalty"] == pytest.approx((first[1] + second[1]) / 2, rel=1e-5)
    assert method.weight.item() == pytest.approx(weight, rel=1e-5)
    assert method.frozen.item() == 1


def test_the_rate_follows_the_schedule() -> None:
    config = replace(CONFIG, epochs=4, warmup_epochs=2, warmup_lr=0.0, min_lr=0.0)
    taken: list[float] = []

    def look(optimiser: torch.optim.Optimizer, *_: Any) -> None:
        taken.extend(group["lr"] for group in optimiser.param_groups)

    handle = register_optimizer_step_pre_hook(look)
    try:
        _, epochs = trained(CountingMethod(), config)
    finally:
        handle.remove()
    rates = [0.0, 0.05, 0.05, 0.1 * 0.5 * (1 - 0.5**0.5)]
    assert [epoch.lr for epoch in epochs] == pytest.approx(rates)
    assert taken == pytest.approx([rate for rate in rates for _ in range(2)])  # two steps an epoch


def test_who_is_told_of_an_epoch_may_end_the_task() -> None:
    method, told = CountingMethod(), list[int]()

    def enough(epoch: Epoch) -> bool:
        told.append(epoch.number)
        return epoch.number == 2

    trainer = Trainer(method, replace(CONFIG, epochs=5), Augment(PLAIN, SETTING.mean, SETTING.std), CPU, 1)
    trainer.fit(TASK, data_of(), enough)
    assert told == [1, 2]
    assert len(method.batches) == 4
    assert not method.training


def test_gradients_are_clipped() -> None:
    free, clipped = CountingMethod(), CountingMethod()
    trained(free, replace(CONFIG, epochs=1))
    trained(clipped, replace(CONFIG, epochs=1, clip=0.01))
    assert abs(clipped.weight.item()) <= 0.1 * (0.01 + 0.019) + 1e-6  # two steps of at most 0.01, with momentum
    assert abs(free.weight.item()) > 10 * abs(clipped.weight.item())


def test_clipping_keeps_the_direction_of_all_gradients_together() -> None:
    class Two(CountingMethod):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Parameter(torch.zeros(()))

        def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
            return {"classification": -3 * self.weight - 4 * self.other}  # a gradient of length 5

    for clip, length in ((0.5, 0.5), (4.0, 4.0), (6.0, 5.0), (0.0, 5.0)):
        method = Two()
        trained(method, replace(CONFIG, epochs=1, batch_size=10, clip=clip))
        moved = [method.weight.item(), method.other.item()]
        assert moved == pytest.approx([0.1 * length * 0.6, 0.1 * length * 0.8], rel=1e-4)


def test_gradients_are_clipped_after_the_method_has_gated_them() -> None:
    """What a method takes away must not count for the norm, or the large gradients of frozen weights slow the rest."""

    class Gating(CountingMethod):
        def __init__(self) -> None:
            super().__init__()
            self.owned = nn.Parameter(torch.zeros(()))

        def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
            return {**super().loss(batch, progress), "owned": 1000 * self.owned}

        def before_step(self, progress: Progress, batch: Batch, gradients: Gradients) -> None:
            super().before_step(progress, batch, gradients)
            self.owned.grad = torch.zeros(())

    gated, alone = Gating(), CountingMethod()
    for method in (gated, alone):
        trained(method, replace(CONFIG, epochs=1, clip=0.5))
    assert gated.owned.item() == 0
    assert gated.weight.item() == pytest.approx(alone.weight.item(), rel=1e-4)
    assert alone.weight.item() == pytest.approx(0.145)  # two steps of 0.05, the first of them felt again in the second


def test_orders_differ_between_epochs_tasks_and_seeds_and_nothing_else_does() -> None:
    runs: list[list[list[float]]] = []
    for task, seed in ((TASK, 1), (TASK, 1), (TASK, 2), (FIRST, 1)):
        torch.manual_seed(len(runs))  # the surroundings must not matter
        method = CountingMethod()
        trained(method, seed=seed, task=task)
        runs.append([batch.images[:, 0, 0, 0].tolist() for batch in method.batches])
    assert runs[0] == runs[1] != runs[2]
    assert runs[0] != runs[3] != runs[2]
    assert runs[0][:2] != runs[0][2:]


def draws(task: Task, seed: int, halfway: HalfwayTask | None = None) -> list[tuple[float, float]]:
    """A random number for the images and one for the method (drop-path) in each of two steps of two epochs."""
    of_images, of_method = list[float](), list[float]()

    class Drawing(Augment):
        def draw(self, batch: int, height: int, width: int, generator: torch.Generator) -> Choices:
            of_images.append(torch.rand((), generator=generator).item())
            return super().draw(batch, height, width, generator)

    class Dropping(CountingMethod):
        def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
            of_method.append(torch.rand(()).item())
            return super().loss(batch, progress)

    trainer = Trainer(Dropping(), CONFIG, Drawing(PLAIN, SETTING.mean, SETTING.std), CPU, seed)
    trainer.fit(task, data_of(), lambda _: None, halfway)
    return list(zip(of_images, of_method, strict=True))


def test_every_step_of_every_epoch_task_and_seed_draws_its_own_numbers() -> None:
    """The same views or the same dropped paths again in the next epoch would be less augmentation than stated."""
    runs = [draws(task, seed) for task, seed in ((TASK, 1), (FIRST, 1), (TASK, 2))]
    assert [len(run) for run in runs] == [4, 4, 4]
    numbers = [number for run in runs for pair in run for number in pair]
    assert len(set(numbers)) == len(numbers)


def test_a_place_in_a_run_draws_the_same_numbers_again() -> None:
    whole = draws(TASK, 1)
    assert draws(TASK, 1) == whole
    fresh = make_optimiser(CONFIG, CountingMethod().parameters()).state_dict()
    assert draws(TASK, 1, HalfwayTask(1, fresh)) == whole[2:]


def test_training_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(4)
    expected = torch.rand(2)
    torch.manual_seed(4)
    trained(CountingMethod())
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_the_second_half_after_a_pause_is_the_same(optimiser: str) -> None:
    config = replace(CONFIG, epochs=3, optimiser=optimiser)  # type: ignore[arg-type]
    whole = CountingMethod()
    _, epochs = trained(whole, config)
    first = CountingMethod()
    states: list[tuple[dict[str, Any], Tensor]] = []

    def remember(_: Epoch) -> None:
        assert trainer.optimiser is not None
        states.append((copy.deepcopy(trainer.optimiser.state_dict()), first.weight.detach().clone()))

    trainer = Trainer(first, config, Augment(PLAIN, SETTING.mean, SETTING.std), CPU, 1)
    trainer.fit(TASK, data_of(), remember)
    state, weight = states[0]
    second = CountingMethod()
    with torch.no_grad():
        second.weight.copy_(weight)
    _, rest = trained(second, config, halfway=HalfwayTask(1, state))
    assert [(epoch.number, epoch.losses, epoch.lr) for epoch in rest] == [
        (epoch.number, epoch.losses, epoch.lr) for epoch in epochs[1:]
    ]
    assert torch.equal(second.weight, whole.weight)


@pytest.mark.parametrize(("precision", "expected"), [("bfloat16", True), ("float32", False), ("auto", False)])
def test_bfloat16_is_used_when_asked_for(precision: str, expected: bool) -> None:
    seen = []

    class Asking(CountingMethod):
        def batch(self, batch: Batch) -> Batch:
            seen.append(torch.is_autocast_enabled("cpu"))  # a teacher may look at the images here
            return super().batch(batch)

        def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
            seen.append(torch.is_autocast_enabled("cpu"))
            return super().loss(batch, progress)

    trained(Asking(), replace(CONFIG, precision=precision))  # type: ignore[arg-type]
    assert set(seen) == {expected}


def test_paths_are_dropped_while_it_learns_and_not_afterwards() -> None:
    modes = []

    class Asking(CountingMethod):
        def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
            modes.append(self.training)
            return super().loss(batch, progress)

    method = Asking().eval()  # as the evaluation of the task before leaves it
    trained(method)
    assert set(modes) == {True}
    assert not method.training


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "not a number"), (float("inf"), "infinite")])
def test_a_loss_that_is_no_number_stops_training(value: float, word: str) -> None:
    class Failing(CountingMethod):
        def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
            terms = super().loss(batch, progress)
            return {**terms, "penalty": terms["penalty"] * value} if len(self.batches) == 4 else terms

    method = Failing()
    epochs: list[Epoch] = []
    trainer = Trainer(method, replace(CONFIG, epochs=5), Augment(PLAIN, SETTING.mean, SETTING.std), CPU, 1)
    with pytest.raises(GcabError, match=rf"the loss became {word} in task 2, epoch 2, step 2: .*lower training\.lr"):
        trainer.fit(TASK, data_of(), epochs.append)
    assert [epoch.number for epoch in epochs] == [1], "the bad epoch must not be recorded or saved"


def test_the_first_bad_step_is_named() -> None:
    losses = torch.zeros(5, 2)
    require_finite(losses, TASK, 0)
    losses[3, 1], losses[4, 0] = float("inf"), float("nan")
    with pytest.raises(GcabError, match="infinite in task 2, epoch 1, step 4"):
        require_finite(losses, TASK, 0)


def test_growth_and_end_draw_from_their_own_seeds() -> None:
    drawn: list[float] = []

    class Drawing(CountingMethod):
        def grow(self, task: Task) -> None:  # noqa: ARG002
            drawn.append(torch.rand(()).item())

        def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
            drawn.append(torch.rand(()).item())

    for task, seed in ((FIRST, 1), (FIRST, 1), (TASK, 1), (FIRST, 2)):
        grow(Drawing(), task, seed)
        finish(Drawing(), task, data_of(), seed)
    assert drawn[:2] == drawn[2:4]
    assert len(set(drawn)) == 6


def test_only_learning_parameters_reach_the_optimiser() -> None:
    method = CountingMethod()
    trainer, _ = trained(method)
    assert trainer.optimiser is not None
    [group] = trainer.optimiser.param_groups
    assert [id(parameter) for parameter in group["params"]] == [id(method.weight)]
    assert isinstance(method.weight, nn.Parameter)


def test_small_networks_train_on_one_thread_and_large_ones_on_all() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with suitable_threads(CPU, resolve("digits/5", "gcab").features_per_batch()):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with suitable_threads(CPU, resolve("cifar100/10", "gcab").features_per_batch()):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
