"""Experience replay keeps to its budget and to images it has seen."""

import pytest
import torch
from helpers.tasks import IMAGE_SIZE, tasks_of
from helpers.world import OPTIMISERS, SETTING, learn
from hypothesis import given, settings
from hypothesis import strategies as st

from gcab.data.tasks import TaskImages
from gcab.methods.er import Er, ErOptions

pytestmark = pytest.mark.repeats


def numbered(first: int, count: int, classes: range) -> TaskImages:
    """Images that say their own number, so that a copy can be traced; the label follows from the number."""
    numbers = torch.arange(first, first + count)
    labels = classes.start + numbers % len(classes)
    return TaskImages(numbers.to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, IMAGE_SIZE, IMAGE_SIZE), labels)


@settings(max_examples=40, derandomize=True)
@given(
    buffer=st.integers(0, 12),
    tasks=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30)), min_size=1, max_size=4),
    seed=st.integers(0, 10_000),
)
def test_the_buffer_holds_a_sample_of_what_was_seen(buffer: int, tasks: list[tuple[int, int]], seed: int) -> None:
    torch.manual_seed(seed)
    method = Er(SETTING, ErOptions(buffer=buffer))
    budget = buffer * 3 * IMAGE_SIZE * IMAGE_SIZE
    label_of: dict[int, int] = {}
    for task, (_, count) in zip(tasks_of(*[classes for classes, _ in tasks]), tasks, strict=True):
        method.grow(task)
        data = numbered(len(label_of) + 1, count, range(task.first, task.first + task.classes))
        method.end_task(task, data)
        label_of |= dict(zip(data.images[:, 0, 0, 0].tolist(), data.labels.tolist(), strict=True))
        assert method.image_bytes() == budget
        assert method.memory.images.shape == (buffer, 3, IMAGE_SIZE, IMAGE_SIZE)
        filled = min(buffer, len(label_of))
        stored = method.memory.images[:filled, 0, 0, 0].tolist()
        assert len(set(stored)) == filled, "an image is stored twice"
        assert [label_of[number] for number in stored] == method.memory.labels[:filled].tolist()
        images = method.memory.images[:filled]
        assert torch.equal(images, images[:, :1, :1, :1].expand_as(images))
    replayed = method.replay(20)
    assert (replayed is None) == (buffer == 0 or len(tasks) == 1)
    if replayed is not None:
        assert len(replayed.images) == len(replayed.labels) == 20
        assert all(
            label_of[number] == label
            for number, label in zip(replayed.images[:, 0, 0, 0].tolist(), replayed.labels.tolist(), strict=True)
        )


def test_replay_reaches_every_stored_image_and_no_empty_place() -> None:
    torch.manual_seed(0)
    method = Er(SETTING, ErOptions(buffer=10))
    for task in tasks_of(1, 1):
        method.grow(task)
        method.end_task(task, numbered(1 + 3 * task.index, 3, range(task.first, task.first + 1)))
    replayed = method.replay(400)
    assert replayed is not None
    assert set(replayed.images[:, 0, 0, 0].tolist()) == {1, 2, 3, 4, 5, 6}


def test_the_first_task_is_trained_without_replay() -> None:
    torch.manual_seed(0)
    method = Er(SETTING, ErOptions(buffer=4))
    learn(method, tasks_of(2)[0], OPTIMISERS["adamw"], epochs=1)
    assert method.replay(4) is None
