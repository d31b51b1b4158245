"""The recorded step's bookkeeping, without a GPU: the same `advance`, called instead of replayed."""

import copy
from collections.abc import Callable

import pytest
import torch
from helpers.settings import FEW_TOKENS, TINY

from gcab.config import RunConfig, resolve
from gcab.data.augment import Augment
from gcab.data.tasks import Batch, Progress, Task, TaskImages
from gcab.fast.compiling import compiled
from gcab.fast.graphs import unchanged
from gcab.methods.method import Method, grow
from gcab.runs.assemble import build_method
from gcab.seeds import seeded
from gcab.training.feed import Feed
from gcab.training.recorded import RecordedSteps, make_steps
from gcab.training.schedule import make_optimiser
from gcab.training.step import PlainSteps, Step, Steps

SMALL = {
    **TINY,
    **FEW_TOKENS,
    "encoder.drop_path": 0.5,
    "training.batch_size": 8,
    "training.lr": 0.01,
}


class CalledSteps(RecordedSteps):
    """Warms up like the real one, then runs `advance` itself where the real one replays its recording."""

    def record(self) -> tuple[Callable[[], None], Callable[[], None]]:
        self.warm_up()
        return self.start, self.advance


def two_tasks(method_name: str) -> tuple[RunConfig, Method, TaskImages]:
    """A method at the start of its second task, and that task's images."""
    config = resolve("digits/5", method_name, changes=SMALL)
    method, random = build_method(config), torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (24, 3, 8, 8), dtype=torch.uint8, generator=random)
    for index in range(2):
        task = Task(index, 2 * index, ("a", "b"))
        grow(method, task, config.seed)
        if index == 0:
            method.end_task(task, TaskImages(images, torch.arange(24) % 2))
    method.begin_task(task)
    return config, method.train(), TaskImages(images, 2 + torch.arange(24) % 2)


def prepare(config: RunConfig, method: Method, data: TaskImages, resident: bool = True) -> tuple[Step, Feed]:
    feed = Feed(data, config.training.batch_size, torch.device("cpu"), resident)
    optimiser = make_optimiser(config.training, method.parameters())
    augment = Augment(config.augment, method.setting.mean, method.setting.std)
    return Step(method, optimiser, augment, torch.Generator(), config.training.clip, bfloat16=False), feed


def train(steps: Steps, step: Step, feed: Feed) -> torch.Tensor:
    """Two epochs with all random numbers from fixed seeds."""
    losses = []
    for epoch in range(2):
        step.random.manual_seed(epoch)
        with seeded(1, "epoch", epoch):
            losses.append(steps.run(feed.order(torch.Generator().manual_seed(epoch))).clone())
    return torch.cat(losses)


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("method_name", ["gcab", "finetune", "er", "agem", "gem", "derpp", "ert", "gss"])
def test_recorded_steps_are_the_plain_steps(method_name: str, resident: bool) -> None:
    """Those whose steps write into the memory that the next batch is drawn from would differ if it were drawn ahead."""
    config, method, data = two_tasks(method_name)
    twin = copy.deepcopy(method)
    step, feed = prepare(config, method, data)
    plain = PlainSteps(step, feed)
    expected = train(plain, step, feed)
    with seeded(1, "warm-up"):
        other_step, other_feed = prepare(config, twin, data, resident)
        called = CalledSteps(other_step, other_feed)
    assert torch.equal(train(called, other_step, other_feed), expected)
    assert called.names == plain.names
    for (name, one), other in zip(method.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


def test_a_batch_drawn_ahead_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race: a recorded step that prepares the next batch before its own images are in the memory."""
    config, method, data = two_tasks("derpp")
    twin = copy.deepcopy(method)
    step, feed = prepare(config, method, data)
    train(PlainSteps(step, feed), step, feed)
    other_step, other_feed = prepare(config, twin, data)
    called = CalledSteps(other_step, other_feed)
    waiting: list[Batch] = []
    learn = other_step.learn

    def learn_late(batch: Batch, progress: Progress) -> dict[str, torch.Tensor]:
        """Draws for the next step first, as work beside this one may."""
        position = called.position + 1
        waiting.append(RecordedSteps.fetch(called, position))
        return learn(batch, progress)

    monkeypatch.setattr(other_step, "learn", learn_late)
    monkeypatch.setattr(
        called, "fetch", lambda position: waiting.pop() if waiting else RecordedSteps.fetch(called, position)
    )
    train(called, other_step, other_feed)
    assert not torch.equal(method.state_dict()["memory.logits"], twin.state_dict()["memory.logits"])


def test_warming_up_leaves_weights_and_a_resumed_optimiser_as_they_were() -> None:
    config, method, data = two_tasks("gcab")
    step, feed = prepare(config, method, data)
    train(PlainSteps(step, feed), step, feed)
    weights = copy.deepcopy(method.state_dict())
    memory = copy.deepcopy(step.optimiser.state_dict())
    CalledSteps(step, feed)
    for name, value in method.state_dict().items():
        assert torch.equal(value, weights[name]), name
    for key, state in step.optimiser.state_dict()["state"].items():
        assert all(torch.equal(value, memory["state"][key][name]) for name, value in state.items())


def test_a_failure_while_warming_up_changes_nothing() -> None:
    config, method, data = two_tasks("finetune")
    step, feed = prepare(config, method, data)
    weights = copy.deepcopy(method.state_dict())

    def fail_after_training() -> None:
        with unchanged([*method.parameters(), *method.buffers()], step.optimiser):
            train(PlainSteps(step, feed), step, feed)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_training()
    assert all(torch.equal(value, weights[name]) for name, value in method.state_dict().items())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own, while its compiler is imported
def test_compiled_forms_are_gone_afterwards() -> None:
    _, method, _ = two_tasks("gcab")

    def replaced() -> int:
        """How many functions of the method's modules are not those of their class."""
        hot = [(module, name) for module in method.modules() for name in getattr(module, "compiled", ())]
        assert len(hot) >= 8  # two encoders with a block each, decoder, heads, projector, and the method's own
        return sum(name in vars(module) for module, name in hot)

    assert replaced() == 0
    with compiled(method.modules()):
        assert replaced() >= 8
    assert replaced() == 0


def test_a_cpu_takes_plain_steps_and_says_nothing() -> None:
    config, method, data = two_tasks("gcab")
    step, feed = prepare(config, method, data)
    said: list[str] = []
    assert isinstance(make_steps(step, feed, said.append), PlainSteps)
    assert said == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, recording works")
def test_where_recording_fails_steps_run_one_by_one_and_one_line_says_why() -> None:
    config, method, data = two_tasks("gcab")
    step, feed = prepare(config, method, data)
    feed.device = torch.device("cuda")  # claimed, not there: recording must fail
    said: list[str] = []
    weights = copy.deepcopy(method.state_dict())
    with pytest.raises((RuntimeError, AssertionError)):
        make_steps(step, feed, said.append)  # not even the plain path has a GPU to count steps on
    assert len(said) == 1
    assert "one by one" in said[0]
    assert all(torch.equal(value, weights[name]) for name, value in method.state_dict().items())
