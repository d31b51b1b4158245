"""Records made from constructed features and logits, with every number known in advance."""

import numpy as np
import pytest
import torch
from helpers.counting_method import CountingMethod
from torch import Tensor

from gcab.data.tasks import Task, TaskImages
from gcab.evaluation.evaluate import BATCH, Evaluator
from gcab.methods.method import Method

CPU = torch.device("cpu")
FIRST, SECOND = Task(0, 0, ("a", "b")), Task(1, 2, ("c", "d"))


def pixels(values: list[int]) -> Tensor:
    """Images of one brightness each, 2x2 pixels."""
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 2, 2)


class DriftingMethod(CountingMethod):
    """Features are the pixels themselves plus `shift`, which `compensate` takes off again up to `left`."""

    def __init__(self, shift: float = 0.0, left: float = 0.0) -> None:
        super().__init__()
        self.shift, self.left = shift, left
        self.register_buffer("pictures", torch.zeros(2, 3, 2, 2, dtype=torch.uint8))
        self.register_buffer("means", torch.zeros(5))
        self.asked: list[int] = []

    def features(self, images: Tensor) -> Tensor:
        self.asked.append(len(images))
        return images.flatten(2).transpose(1, 2) + self.shift  # (B, 4, 3)

    def compensate(self, features: Tensor, task: int) -> Tensor:
        return features - self.shift + self.left * (task + 1)

    def predict(self, images: Tensor) -> Tensor:
        """The brightness is the class, but class 3 is always taken for class 0."""
        brightness = images.mean(dim=(1, 2, 3)).round().long()
        logits = torch.nn.functional.one_hot(brightness, 4).float()
        logits[:, 0] += 2 * logits[:, 3]
        return logits

    def embed(self, images: Tensor, task: int, compensate: bool) -> Tensor:
        return images.mean(dim=(2, 3)) + (0.0 if compensate else self.shift) + 100 * task

    def capacity(self) -> dict[str, float]:
        return {"input": 0.5}

    def image_bytes(self) -> int:
        return 24

    def prototype_bytes(self) -> int:
        return 20


def evaluator(method: CountingMethod, values: list[int], labels: list[int]) -> Evaluator:
    return Evaluator(method, TaskImages(pixels(values), torch.tensor(labels)), CPU)


def test_a_record_by_hand() -> None:
    looking = evaluator(DriftingMethod(), [0, 1, 0, 1, 2, 3, 2], [0, 1, 0, 0, 2, 3, 3])
    record, logits, labels = looking.record((FIRST, SECOND), {})
    assert record["tag"] == pytest.approx([75.0, 100 / 3])  # one "a" looks like b; of c, d, d only c is found
    assert record["taw"] == pytest.approx([75.0, 200 / 3])  # told the task, the first d is found too
    assert record["task_identification"] == pytest.approx(600 / 7)
    assert record["classes"] == [2, 2]
    assert record["images"] == [4, 3]
    assert (record["kind"], record["task"], record["capacity"]) == ("task", 2, {"input": 0.5})
    assert record["parameters"] == 2
    assert logits.shape == (7, 4)
    assert labels.tolist() == [0, 1, 0, 0, 2, 3, 3]


def test_only_images_of_tasks_seen_are_tested() -> None:
    looking = evaluator(DriftingMethod(), [0, 3, 1, 2], [0, 3, 1, 2])
    logits, labels = looking.predict((FIRST,))
    assert labels.tolist() == [0, 1]
    assert len(logits) == 2


def test_stored_bytes_add_up() -> None:
    stored = evaluator(DriftingMethod(), [0], [0]).stored_bytes()
    assert stored == {"model": 8, "images": 24, "prototypes": 20}  # two weights of four bytes


def test_drift_is_relative_to_where_features_were() -> None:
    values, labels = [3, 4], [0, 1]
    reference = evaluator(DriftingMethod(), values, labels).reference(FIRST)
    assert reference is not None
    assert torch.equal(reference, pixels(values).float().flatten(2).transpose(1, 2))
    drift = evaluator(DriftingMethod(shift=6.0, left=1.5), values, labels).drift(FIRST, reference)
    assert drift["task"] == 1
    assert drift["raw"] == pytest.approx((6 / 3 + 6 / 4) / 2)
    assert drift["compensated"] == pytest.approx((1.5 / 3 + 1.5 / 4) / 2)


def test_each_task_is_compensated_into_its_own_space() -> None:
    looking = evaluator(DriftingMethod(shift=6.0, left=1.0), [3, 4, 5, 8], [0, 1, 2, 3])
    references = {
        0: pixels([3, 4]).float().flatten(2).transpose(1, 2),
        1: pixels([5, 8]).float().flatten(2).transpose(1, 2),
    }
    drifts = [looking.drift(task, references[task.index]) for task in (FIRST, SECOND)]
    assert [drift["task"] for drift in drifts] == [1, 2]
    assert drifts[1]["raw"] == pytest.approx((6 / 5 + 6 / 8) / 2)
    assert drifts[1]["compensated"] == pytest.approx((2 / 5 + 2 / 8) / 2)


def test_a_method_without_features_has_no_drift_and_no_probe() -> None:
    looking = evaluator(CountingMethod(), [1, 2], [0, 1])
    assert not looking.has_features()
    assert looking.reference(FIRST) is None
    assert looking.embeddings(FIRST) is None


def test_a_method_that_cannot_compensate_says_so() -> None:
    class Plain(DriftingMethod):
        compensate = Method.compensate  # type: ignore[assignment]

    looking = evaluator(Plain(), [3, 4], [0, 1])
    reference = looking.reference(FIRST)
    assert reference is not None
    assert looking.drift(FIRST, reference) == {"task": 1, "raw": 0.0, "compensated": None}


def test_the_probe_is_nearest_class_mean() -> None:
    """Training means are 15 and 60, so the border is 37.5: of the test images, 40 falls on the wrong side."""
    train = TaskImages(pixels([10, 20, 50, 70]), torch.tensor([2, 2, 3, 3]))
    looking = evaluator(DriftingMethod(), [12, 40, 45, 61, 99], [2, 2, 3, 3, 0])
    assert looking.probe(SECOND, train) == pytest.approx(75.0)


def test_many_images_go_in_batches_and_come_back_in_order() -> None:
    method = DriftingMethod()
    values = [n % 251 for n in range(2 * BATCH + 7)]
    looking = evaluator(method, values, [0] * len(values))
    result = looking.apply(method.features, looking.test.images)
    assert method.asked == [BATCH, BATCH, 7]
    assert result[:, 0, 0].round().int().tolist() == values


def test_embeddings_come_raw_and_compensated() -> None:
    embedded = evaluator(DriftingMethod(shift=6.0), [3, 4, 9], [0, 1, 2]).embeddings(FIRST)
    assert embedded is not None
    assert embedded["labels"].tolist() == [0, 1]
    assert np.allclose(embedded["compensated"][:, 0], [3, 4])
    assert np.allclose(embedded["raw"][:, 0], [9, 10])


def test_looking_changes_nothing() -> None:
    method = DriftingMethod()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    evaluator(method, [0, 1, 2, 3], [0, 1, 2, 3]).record((FIRST, SECOND), {})
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    assert method.weight.grad is None
