"""From a data set to tasks: sizes, orders, labels, held-out images, and streams that close."""

import pytest
import torch
from torch import Tensor

from gcab.data.cifar100 import ORDER
from gcab.data.images import ImageSet
from gcab.data.scenario import ClosedTaskError, Scenario, ScenarioConfig, equal_sizes, split_off
from gcab.errors import GcabError

CLASSES = tuple("abcdefg")


def config(
    tasks: int = 3, sizes: tuple[int, ...] = (), order: str = "sorted", validation: float = 0.0, dataset: str = "digits"
) -> ScenarioConfig:
    assert order in ("sorted", "random", "paper")
    return ScenarioConfig("test", dataset, tasks, sizes, order, validation)  # type: ignore[arg-type]


def numbered(per_class: int, classes: int = len(CLASSES)) -> ImageSet:
    """Image n shows the number n, so that a copy can be traced to its label."""
    numbers = torch.arange(per_class * classes)
    images = numbers.to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 2, 2)
    return ImageSet(images, numbers % classes, CLASSES[:classes])


def numbers(images: Tensor) -> list[int]:
    return images[:, 0, 0, 0].tolist()


@pytest.mark.parametrize(
    ("classes", "tasks", "sizes"), [(10, 5, (2,) * 5), (7, 3, (3, 2, 2)), (5, 5, (1,) * 5), (9, 1, (9,))]
)
def test_classes_are_shared_out_evenly(classes: int, tasks: int, sizes: tuple[int, ...]) -> None:
    assert equal_sizes(classes, tasks) == sizes


def test_tasks_hold_the_classes_in_order() -> None:
    scenario = Scenario.build(config(sizes=(1, 4, 2)), 1, CLASSES)
    assert [(task.index, task.first, task.names) for task in scenario.tasks] == [
        (0, 0, ("a",)),
        (1, 1, ("b", "c", "d", "e")),
        (2, 5, ("f", "g")),
    ]
    [merged] = scenario.merged()
    assert (merged.index, merged.first, merged.names) == (0, 0, CLASSES)


@pytest.mark.parametrize("sizes", [(3, 4), (3, 3, 3), (7, 0, 0), (8, -2, 1), (1, 1, 4)])
def test_sizes_that_do_not_add_up_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(GcabError, match=r"scenario\.sizes .* must be 3 positive numbers that add up to the 7 classes"):
        Scenario.build(config(sizes=sizes), 1, CLASSES)


def test_more_tasks_than_classes_are_refused() -> None:
    with pytest.raises(GcabError, match="7 classes cannot be split into 8 tasks"):
        Scenario.build(config(tasks=8), 1, CLASSES)


def test_the_papers_order_is_the_authors() -> None:
    names = [f"class {label}" for label in range(100)]
    scenario = Scenario.build(config(tasks=10, order="paper", dataset="cifar100"), 1, names)
    assert scenario.order[:6] == (87, 0, 52, 58, 44, 91)
    assert sorted(ORDER) == list(range(100))
    assert scenario.tasks[0].names[:2] == ("class 87", "class 0")
    assert scenario.order == Scenario.build(scenario.config, 2, names).order
    with pytest.raises(
        GcabError, match=r"known for cifar100, tiny-imagenet, imagenet100 only: set scenario\.order=random"
    ):
        Scenario.build(config(order="paper"), 1, CLASSES)


def test_a_random_order_follows_from_the_seed() -> None:
    orders = [Scenario.build(config(order="random"), seed, CLASSES).order for seed in (1, 1, 2)]
    assert sorted(orders[0]) == list(range(7))
    assert orders[0] == orders[1] != orders[2]
    assert Scenario.build(config(order="sorted"), 3, CLASSES).order == tuple(range(7))


def test_labels_become_positions_of_arrival() -> None:
    scenario = Scenario(config(), 1, (), order=(4, 0, 3, 1, 2))
    assert scenario.relabel(torch.tensor([4, 0, 3, 1, 2, 4])).tolist() == [0, 1, 2, 3, 4, 0]


@pytest.mark.parametrize("order", ["sorted", "random"])
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_every_image_reaches_exactly_one_task_with_its_own_label(order: str, validation: float) -> None:
    data = numbered(8)
    scenario = Scenario.build(config(order=order, validation=validation), 5, CLASSES)
    found: list[int] = []
    for task in scenario.tasks:
        part = scenario.open(task, data).train()
        assert part.images.dtype == torch.uint8
        found += numbers(part.images)
        for number, label in zip(numbers(part.images), part.labels.tolist(), strict=True):
            assert task.first <= label < task.first + task.classes
            assert task.names[label - task.first] == CLASSES[number % 7]
    held_out = numbers(data.images[scenario.held_out(data)])
    assert len(held_out) == (14 if validation else 0), "a quarter of the 8 images of each class"
    assert sorted([*found, *held_out]) == list(range(56))


def labelled(*counts: int) -> ImageSet:
    """So many blank images of each class."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return ImageSet(torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8), labels, CLASSES[: len(counts)])


def test_the_same_share_of_every_class_is_held_out() -> None:
    images = labelled(20, 8, 2)
    held_out = split_off(images, 0.25, seed=1)
    assert torch.bincount(images.labels[held_out]).tolist() == [5, 2, 1]  # 0.5 of an image is one, but never both
    assert len(held_out.unique()) == 8
    again, other = split_off(images, 0.25, seed=1), split_off(images, 0.25, seed=2)
    assert torch.equal(held_out, again)
    assert not torch.equal(held_out, other)


def test_at_least_one_image_stays_on_each_side() -> None:
    images = labelled(5, 5)
    assert torch.bincount(images.labels[split_off(images, 0.01, seed=1)]).tolist() == [1, 1]
    assert torch.bincount(images.labels[split_off(images, 0.99, seed=1)]).tolist() == [4, 4]
    with pytest.raises(GcabError, match=f"class '{CLASSES[1]}' has one training image only: none can be held out"):
        split_off(labelled(2, 1), 0.5, seed=1)


def test_a_closed_stream_cannot_be_read() -> None:
    scenario = Scenario.build(config(validation=0.2), 1, CLASSES)
    stream = scenario.open(scenario.tasks[1], numbered(5))
    assert len(stream.train().labels) == 8
    stream.close()
    stream.close()
    with pytest.raises(ClosedTaskError, match="task 2 has ended: its images can no longer be read"):
        stream.train()
    assert issubclass(ClosedTaskError, GcabError)


def test_what_was_closed_cannot_be_opened_again() -> None:
    """Neither the task nor any other that has one of its classes, nor through a stream that was open beside it."""
    scenario, data = Scenario.build(config(), 1, CLASSES), numbered(5)
    first, second, _ = scenario.tasks
    beside = scenario.open(first, data)
    scenario.open(first, data).close()
    for read in (beside.train, lambda: scenario.open(first, data), lambda: scenario.open(scenario.merged()[0], data)):
        with pytest.raises(ClosedTaskError, match="task 1 has ended: its images can no longer be read"):
            read()
    assert len(scenario.open(second, data).train().labels) == 10


def test_the_classes_of_joint_training_are_closed_one_and_all() -> None:
    scenario, data = Scenario.build(config(), 1, CLASSES), numbered(5)
    scenario.open(scenario.merged()[0], data).close()
    for task in scenario.tasks:
        with pytest.raises(ClosedTaskError, match=f"task {task.index + 1} has ended"):
            scenario.open(task, data)


def test_who_starts_afresh_may_open_the_task_again() -> None:
    """As a resumed run or a distillation does, with the data set at hand."""
    data, ended = numbered(5), Scenario.build(config(), 1, CLASSES)
    ended.open(ended.tasks[0], data).close()
    fresh = Scenario.build(config(), 1, CLASSES)
    assert fresh == ended
    assert len(fresh.open(fresh.tasks[0], data).train().labels) == 15


def test_a_stream_has_its_own_copy_of_the_images() -> None:
    """Otherwise closing it would not close the way to them."""
    data = numbered(2)
    scenario = Scenario.build(config(tasks=1), 1, CLASSES)
    train = scenario.open(scenario.tasks[0], data).train()
    assert train.images.data_ptr() != data.images.data_ptr()


def test_one_class_only_is_refused() -> None:
    with pytest.raises(GcabError, match=r"one class only \('bird'\)"):
        Scenario.build(ScenarioConfig(name="folder/1", dataset="folder", tasks=1), 1, ["bird"])
