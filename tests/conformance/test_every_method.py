"""What every method owes the trainer, checked for each one that `gcab.methods` holds: a new file there is enough."""

import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import (
    BUFFER,
    CLASSES,
    CPU,
    Case,
    FinishedRun,
    WatchedScenario,
    data_for,
    differing,
    finished_run,
    profile_cases,
    same_results,
    switch_cases,
)
from torch import Tensor

from gcab.config import RunConfig
from gcab.data.augment import Augment
from gcab.data.scenario import ClosedTaskError
from gcab.data.tasks import Progress, Task, TaskImages
from gcab.methods.gcab import Gcab
from gcab.methods.method import Method, grow, state_bytes
from gcab.methods.registry import methods
from gcab.runs.assemble import build_method, load_method
from gcab.runs.folder import RunFolder
from gcab.runs.run import Run, train_run
from gcab.sizes import sides
from gcab.training.step import Step
from gcab.training.trainer import Epoch, Trainer, finish

pytestmark = pytest.mark.repeats

PROFILES, SWITCHES = profile_cases(), switch_cases()


class StoppedError(Exception):
    """The run was stopped from outside."""


@pytest.fixture(scope="module", params=[*PROFILES, *SWITCHES], ids=str)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """An uninterrupted run of a case."""
    case: Case = request.param
    return finished_run(case.config(), tmp_path_factory.mktemp("run") / "uninterrupted")


def some_images(setting_of: Method, count: int = 30) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    shape = (count, 3, *sides(setting_of.setting.image_size))
    images = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
    return setting_of.setting.normalise(images)


@torch.inference_mode()
def predictions(method: Method) -> Tensor:
    return method.predict(some_images(method))


def one_more_task(finished: FinishedRun) -> tuple[Method, Task, TaskImages]:
    """The saved model as it begins a task after the last, and images for it."""
    method, config, _ = load_method(finished.run.model)
    task = Task(len(finished.tasks), len(CLASSES), ("new one", "new other"))
    grow(method, task, config.seed)
    method.begin_task(task)
    generator = torch.Generator().manual_seed(6)
    shape = (24, 3, *sides(method.setting.image_size))
    images = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
    return method, task, TaskImages(images, task.first + torch.arange(24) % 2)


def train(method: Method, task: Task, data: TaskImages, config: RunConfig) -> list[Epoch]:
    setting = method.setting
    epochs: list[Epoch] = []
    augment = Augment(config.augment, setting.mean, setting.std)
    Trainer(method, config.training, augment, CPU, config.seed).fit(task, data, epochs.append)
    return epochs


def test_there_is_a_logit_for_every_class_seen(finished: FinishedRun) -> None:
    scenario = finished.data.scenario
    after = [len(scenario.tasks)] if finished.method.joint else range(1, len(scenario.tasks) + 1)
    assert finished.run.arrays_names("task-") == [f"task-{number:02d}" for number in after]
    for number in after:
        arrays = finished.run.load_arrays(f"task-{number:02d}")
        assert arrays is not None
        seen = sum(task.classes for task in scenario.tasks[:number])
        assert arrays["logits"].shape == (4 * seen, seen)
        assert sorted(set(arrays["labels"].tolist())) == list(range(seen))
    logits = predictions(finished.method)
    assert logits.shape == (30, len(CLASSES))
    assert bool(logits.isfinite().all())


def place(record: dict[str, Any]) -> tuple[str, int | None, int | None]:
    return record["kind"], record.get("task"), record.get("epoch")


def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    finished: FinishedRun, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """GCAB is stopped at every single record, others at every second, switches at three in the middle of the run."""
    case, stops = request.node.callspec.params["finished"], [place(record) for record in finished.run.records()]
    if case in SWITCHES:
        stops = stops[len(stops) // 2 - 1 :][:3]
    elif case.method != "gcab":
        stops = stops[::2]
    left = list(stops)

    def stop_once(record: dict[str, Any]) -> None:
        if place(record) in left:
            left.remove(place(record))
            raise StoppedError

    final = None
    while final is None:
        torch.manual_seed(len(left))  # a run depends on its own seed only
        with contextlib.suppress(StoppedError):
            data = data_for(finished.config)
            final = train_run(finished.config, data, tmp_path / "run", CPU, stop_once, checkpoint_seconds=0)
    assert not left
    same_results(RunFolder.open(tmp_path / "run"), finished.run)


def test_a_saved_model_predicts_the_same(finished: FinishedRun) -> None:
    loaded, config, _ = load_method(finished.run.model)
    assert config == finished.config
    assert not loaded.training
    assert differing(dict(loaded.state_dict()), dict(finished.method.state_dict())) == []
    assert torch.equal(predictions(loaded), predictions(finished.method))


def test_all_knowledge_is_in_the_state(finished: FinishedRun) -> None:
    """A method built and grown from other random numbers predicts the same once it has the state."""
    torch.manual_seed(99)
    fresh = build_method(finished.config).eval()
    for task in finished.tasks:
        grow(fresh, task, seed=99)
    untaught = predictions(fresh)
    fresh.load_state_dict(finished.method.state_dict(), strict=True)
    assert not torch.equal(untaught, predictions(finished.method))
    assert torch.equal(predictions(fresh), predictions(finished.method))
    assert fresh.capacity() == finished.method.capacity()
    assert fresh.image_bytes() == finished.method.image_bytes()
    assert fresh.prototype_bytes() == finished.method.prototype_bytes()


def test_the_loss_terms_are_named_and_have_gradients(finished: FinishedRun) -> None:
    epochs = finished.run.records("epoch")
    assert bool(epochs) == finished.method.trains
    for record in epochs:
        assert "classification" in record["losses"]
        assert all(isinstance(loss, float) for loss in record["losses"].values())
    method, _, data = one_more_task(finished)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():  # away from the special point where a new task begins
        for parameter in method.parameters():
            if parameter.requires_grad:
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    method.train()
    unused: Any = None
    augment = Augment(finished.config.augment, method.setting.mean, method.setting.std)
    step = Step(method, unused, augment, torch.Generator(), 0.0, bfloat16=False)
    terms = method.loss(step.prepare(data.images, data.labels), Progress(torch.tensor(0), 4))
    if not method.joint:
        assert terms.keys() == (epochs[-1]["losses"].keys() if epochs else set())
    for name in terms:
        method.zero_grad()
        value = method.loss(step.prepare(data.images, data.labels), Progress(torch.tensor(0), 4))[name]
        assert value.shape == ()
        value.backward()
        gradients = [parameter.grad for parameter in method.parameters() if parameter.grad is not None]
        assert all(bool(gradient.isfinite().all()) for gradient in gradients), name
        assert any(bool(gradient.any()) for gradient in gradients), f"{name} teaches nothing"


def test_training_moves_what_may_learn_and_nothing_else(finished: FinishedRun) -> None:
    method, task, data = one_more_task(finished)
    before = {name: parameter.detach().clone() for name, parameter in method.named_parameters()}
    learning = {name for name, parameter in method.named_parameters() if parameter.requires_grad}
    owned = owned_by_earlier_tasks(method)
    train(method, task, data, finished.config)
    moved = set(differing(before, {name: parameter.detach() for name, parameter in method.named_parameters()}))
    assert moved <= learning - owned
    assert len(moved) > 0.8 * len(learning - owned) or not learning, f"not moved: {sorted(learning - owned - moved)}"


def owned_by_earlier_tasks(method: Method) -> set[str]:
    """The names of weights that gates keep as they are, to the last number."""
    if not isinstance(method, Gcab) or not method.network.options.gates:
        return set()
    owned = [weight for weight, mask in method.network.updatable() if not mask.any()]
    return {name for name, weight in method.named_parameters() if any(weight is one for one in owned)}


def test_images_of_finished_tasks_are_out_of_reach(finished: FinishedRun) -> None:
    scenario = finished.data.scenario
    assert isinstance(scenario, WatchedScenario)
    assert len(scenario.streams) == len(finished.tasks)
    for stream in scenario.streams:
        with pytest.raises(ClosedTaskError, match=f"task {stream.task.index + 1} has ended"):
            stream.train()
    assert scenario.tasks_in_memory() == 0, "somebody keeps the training images"


def as_bytes(tensors: Iterator[Tensor]) -> bytes:
    return b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)


def test_stored_images_are_declared_to_the_byte(finished: FinishedRun) -> None:
    method, state = finished.method, dict(finished.method.state_dict())
    images, setting = finished.data.train.images, method.setting
    budget = BUFFER * images[0].nbytes if hasattr(finished.config.options, "buffer") else 0
    assert method.image_bytes() == budget
    assert sum(value.nbytes for value in state.values() if value.dtype == torch.uint8) == budget
    stored = finished.run.records("task")[-1]["bytes"]
    assert stored["images"] == budget
    assert stored["prototypes"] == method.prototype_bytes()
    assert sum(stored.values()) == state_bytes(method) == sum(value.nbytes for value in state.values())

    memory = as_bytes(iter(state.values()))
    forms = (images, images.float(), images.float() / 255, setting.normalise(images))
    kept = sum(any(as_bytes(iter([form[index]])) in memory for form in forms) for index in range(len(images)))
    stored_once = {as_bytes(iter([image])) for held in method.memories() for image in held.everything().images}
    assert kept == len(stored_once) <= method.stored_images() <= BUFFER  # an image may be met, and stored, twice


def test_a_method_keeps_no_tensor_outside_its_state(finished: FinishedRun) -> None:
    for name, module in finished.method.named_modules():
        for key, value in vars(module).items():
            if key not in ("_parameters", "_buffers", "_modules"):
                assert not tensors_in(value), f"{name}.{key} holds a tensor that no checkpoint saves"


def tensors_in(value: Any) -> bool:
    if isinstance(value, dict):
        return any(tensors_in(item) for item in value.values())
    if isinstance(value, list | tuple | set):
        return any(tensors_in(item) for item in value)
    return isinstance(value, Tensor | TaskImages)


@pytest.mark.parametrize("case", PROFILES, ids=str)
def test_the_seed_alone_decides_the_initial_weights(case: Case, tmp_path: Path) -> None:
    def initial(seed: int, surroundings: int) -> dict[str, Tensor]:
        config = case.config(seed)
        data = data_for(config)
        torch.manual_seed(surroundings)
        run = RunFolder(tmp_path, {})
        method = Run(config, data, run, CPU, lambda _: None, checkpoint_seconds=0).method
        grow(method, data.scenario.tasks[0], seed)
        return {name: parameter.detach() for name, parameter in method.named_parameters()}

    first, again, other = initial(1, 0), initial(1, 1), initial(2, 0)
    assert differing(first, again) == [], "the same seed gave other weights"
    same = sum(int((value == other[name]).sum()) for name, value in first.items())
    assert same < 0.5 * sum(value.numel() for value in first.values()) or not first, (
        "another seed gave the same weights"
    )


@pytest.mark.parametrize("case", PROFILES, ids=str)
def test_every_method_learns(case: Case) -> None:
    changes = {"training.epochs": 15, "training.lr": 1e-2, "training.warmup_epochs": 0}
    unaltered = {"encoder.drop_path": 0.0, "augment.flip": False, "augment.crop": "none"}
    config = case.config(changes=changes | unaltered)
    method, data = build_method(config), data_for(config)
    task = data.scenario.tasks[0]
    images = data.scenario.open(task, data.train).train()
    grow(method, task, config.seed)
    method.begin_task(task)
    epochs = train(method, task, images, config)
    finish(method, task, images, config.seed)
    if method.trains:
        assert epochs[-1].losses["classification"] < 0.8 * epochs[0].losses["classification"]
    with torch.inference_mode():
        logits = method.predict(method.setting.normalise(images.images))
    assert float((logits.argmax(dim=1) == images.labels).float().mean()) > 0.9


@pytest.mark.parametrize("name", methods())
def test_nobody_tells_a_method_the_task_of_an_image(name: str) -> None:
    assert list(inspect.signature(methods()[name].predict).parameters) == ["self", "images"]


@pytest.mark.parametrize("name", methods())
def test_every_method_introduces_itself(name: str) -> None:
    kind = methods()[name]
    assert kind.summary
    assert "\n" not in kind.summary
    assert kind.Options.__dataclass_params__.frozen
    assert kind.Options.__doc__
