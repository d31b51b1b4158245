"""Growing, resuming and predicting: nothing that was learned changes by it."""

import pytest
import torch
from helpers.tasks import IMAGE_SIZE, gcab_options, images_of, tasks_of
from helpers.world import OPTIMISERS, SETTING, head_logits, isolating_options, learn, new_gcab, same, train
from torch import Tensor

from gcab.data.tasks import Batch, Progress, Task
from gcab.methods.er import Er, ErOptions
from gcab.methods.finetune import Finetune, FinetuneOptions
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.gradients import Gradients
from gcab.methods.method import Method

pytestmark = pytest.mark.repeats

BATCH = Batch(torch.empty(0), torch.empty(0))

GENTLE = OPTIMISERS["adamw"]
RESUMED = isolating_options() | {"paper": gcab_options("paper")}


def some_images(count: int = 7) -> Tensor:
    return torch.randn(count, 3, IMAGE_SIZE, IMAGE_SIZE, generator=torch.Generator().manual_seed(31))


def learned(options: GcabOptions, tasks: list[Task]) -> Gcab:
    method = new_gcab(options)
    for task in tasks:
        learn(method, task, GENTLE, epochs=1)
    return method.eval()


def rebuilt(blank: Method, tasks: list[Task], state: dict[str, Tensor], in_training: bool) -> Method:
    """A checkpoint's way back: replay growth, begin the task that was under way, load strictly."""
    for task in tasks:
        blank.grow(task)
    if in_training:
        blank.begin_task(tasks[-1])
    blank.load_state_dict(state, strict=True)
    return blank.eval()


@pytest.mark.parametrize("name", ["official, binarised at the end", "paper, binarised at the end"])
def test_growing_changes_no_old_output(name: str) -> None:
    method = learned(isolating_options()[name], tasks_of(2, 3))
    before = head_logits(method.network, 2)
    features = method.features(some_images())
    method.grow(tasks_of(2, 3, 2)[2])
    assert same(head_logits(method.network, 2), before)
    assert torch.equal(method.features(some_images()), features)


def test_growing_keeps_the_old_columns_of_a_plain_network() -> None:
    torch.manual_seed(0)
    method = Finetune(SETTING, FinetuneOptions())
    tasks = tasks_of(2, 3)
    learn(method, tasks[0], GENTLE)
    before = method.eval().predict(some_images())
    method.grow(tasks[1])
    after = method.predict(some_images())
    assert after.shape == (7, 5)
    assert torch.equal(after[:, :2], before)


def test_finetuning_forgets() -> None:
    """The lower bound must be free to change everything, old heads too."""
    torch.manual_seed(0)
    method = Finetune(SETTING, FinetuneOptions())
    tasks = tasks_of(2, 2)
    learn(method, tasks[0], GENTLE)
    before = method.predict(some_images())
    learn(method, tasks[1], GENTLE)
    assert all(parameter.requires_grad for parameter in method.parameters())
    assert not torch.allclose(method.predict(some_images())[:, :2], before)


@pytest.mark.parametrize("options", [gcab_options("official"), gcab_options("paper")], ids=["official", "paper"])
def test_a_prediction_does_not_depend_on_its_batch(options: GcabOptions) -> None:
    method = learned(options, tasks_of(2, 2, 2))
    images = some_images()
    with torch.no_grad():
        together = method.predict(images)
        alone = torch.cat([method.predict(image[None]) for image in images])
        turned = method.predict(images.flip(0)).flip(0)
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together, turned, atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-3)


@pytest.mark.parametrize("name", RESUMED)
def test_a_learned_method_comes_back_from_its_state(name: str) -> None:
    tasks = tasks_of(2, 3, 2)
    method = learned(RESUMED[name], tasks)
    again = rebuilt(new_gcab(RESUMED[name], seed=99), tasks, method.state_dict(), in_training=False)
    with torch.no_grad():
        assert torch.equal(again.predict(some_images()), method.predict(some_images()))
    assert again.capacity() == method.capacity()


@pytest.mark.parametrize("name", RESUMED)
def test_a_method_comes_back_in_the_middle_of_a_task(name: str) -> None:
    tasks = tasks_of(2, 2, 2)
    method = learned(RESUMED[name], tasks[:2])
    method.grow(tasks[2])
    method.begin_task(tasks[2])
    train(method, tasks[2], GENTLE, epochs=1)
    state = {key: value.clone() for key, value in method.state_dict().items()}
    assert any(key.startswith("teacher.") for key in state)
    again = rebuilt(new_gcab(RESUMED[name], seed=99), tasks, state, in_training=True)
    with torch.no_grad():
        assert torch.equal(again.predict(some_images()), method.eval().predict(some_images()))
    for one in (method, again):  # and both go the same way from here
        torch.manual_seed(5)
        train(one, tasks[2], GENTLE, epochs=1)
        one.end_task(tasks[2], images_of(tasks[2]))
    assert method.state_dict().keys() == again.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in method.state_dict().items())


def test_replay_comes_back_with_its_images() -> None:
    tasks = tasks_of(2, 2)
    method, again = (Er(SETTING, ErOptions(buffer=5)) for _ in range(2))
    for task in tasks:
        learn(method, task, GENTLE, epochs=1)
    rebuilt(again, tasks, method.state_dict(), in_training=False)
    torch.manual_seed(6)
    ours = method.replay(9)
    torch.manual_seed(6)
    theirs = again.replay(9)
    assert ours is not None
    assert theirs is not None
    assert torch.equal(ours.images, theirs.images)
    assert torch.equal(ours.labels, theirs.labels)


def test_thirty_tasks() -> None:
    method = new_gcab(gcab_options("official"))
    tasks = tasks_of(*[1] * 30)
    promised: list[Tensor] = []
    for task in tasks:
        method.grow(task)
        promised += head_logits(method.network, task.index)[len(promised) :]
        method.begin_task(task)
        train(method, task, GENTLE, epochs=1, steps=1)
        method.end_task(task, images_of(task))
        assert all(0 < used <= 1 for used in method.capacity().values())
    with torch.no_grad():
        logits = method.predict(some_images())
    assert logits.shape == (7, 30)
    assert bool(logits.isfinite().all())
    assert same(head_logits(method.network, 29), promised)
    again = rebuilt(new_gcab(gcab_options("official"), seed=1), tasks, method.state_dict(), in_training=False)
    with torch.no_grad():
        assert torch.equal(again.predict(some_images()), logits)


def test_nothing_of_a_step_is_remembered() -> None:
    """What `before_step` holds back must not reach a checkpoint."""
    tasks = tasks_of(2, 2)
    method = learned(gcab_options("official"), tasks)
    names = set(method.state_dict())
    method.before_step(Progress(torch.tensor(0), 1), BATCH, Gradients([], lambda loss: loss()))
    assert set(method.state_dict()) == names


def test_old_images_are_not_kept() -> None:
    method = learned(gcab_options("official"), tasks_of(2, 2))
    assert method.image_bytes() == 0
    assert method.replay(3) is None
    assert not any(value.dtype == torch.uint8 for value in method.state_dict().values())
