"""Hand-computed values of every metric, and the inequalities that hold for any predictions."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcab.errors import GcabError
from gcab.evaluation.metrics import (
    METRICS,
    Results,
    accuracy_row,
    describe,
    incremental_tag,
    incremental_taw,
    results_from_records,
    summary,
    task_of_class,
)

HAND = Results(
    tag=[[80.0], [50.0, 70.0], [60.0, 40.0, 90.0]],
    taw=[[80.0], [82.0, 75.0], [78.0, 77.0, 95.0]],
    classes=[10, 20, 10],
    task_identification=[100.0, 70.0, 66.0],
    probe=[None, (30.0, 20.0), (42.0, 22.0)],
)
JOINT = Results(tag=[[60.0, 90.0]], taw=[[70.0, 95.0]], classes=[1, 3], task_identification=[85.0], probe=[None])
EMPTY = Results(tag=[], taw=[], classes=[], task_identification=[], probe=[])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("acc_tag", (60 * 10 + 40 * 20 + 90 * 10) / 40),  # 57.5, the unweighted mean would be 63.3
        ("acc_taw", (78 + 77 + 95) / 3),
        ("average_incremental_accuracy", (80 + (50 * 10 + 70 * 20) / 30 + 57.5) / 3),
        ("forgetting", ((80 - 60) + (70 - 40)) / 2),
        ("forgetting_taw", ((82 - 78) + (75 - 77)) / 2),  # the best moment of task 1 came after task 2
        ("backward_transfer", ((60 - 80) + (40 - 70)) / 2),
        ("backward_transfer_taw", ((78 - 80) + (77 - 75)) / 2),
        ("forward_transfer", (10 + 20) / 2),
        ("task_identification", 66.0),
    ],
)
def test_hand_computed(name: str, expected: float) -> None:
    assert METRICS[name](HAND) == pytest.approx(expected)


def test_every_metric_has_a_hand_computed_case() -> None:
    assert len(METRICS) == 9  # add the new metric's case above


def test_joint_training_has_no_history() -> None:
    values = summary(JOINT)
    assert values["acc_tag"] == pytest.approx((60 + 3 * 90) / 4) == values["average_incremental_accuracy"]
    assert values["acc_taw"] == pytest.approx(82.5)
    undefined = {name for name, value in values.items() if value is None}
    assert undefined == {
        "forgetting",
        "forgetting_taw",
        "backward_transfer",
        "backward_transfer_taw",
        "forward_transfer",
    }
    assert JOINT.joint
    assert not HAND.joint


def test_a_run_without_a_finished_task_has_no_metric() -> None:
    assert set(summary(EMPTY).values()) == {None}


def test_forward_transfer_skips_the_first_task_and_tasks_without_a_probe() -> None:
    results = Results(HAND.tag, HAND.taw, HAND.classes, HAND.task_identification, [(99.0, 0.0), None, (42.0, 22.0)])
    assert METRICS["forward_transfer"](results) == pytest.approx(20.0)


def test_curves_end_at_the_final_accuracies() -> None:
    assert incremental_tag(HAND) == pytest.approx([80.0, 1900 / 30, 57.5])
    assert incremental_taw(HAND) == pytest.approx([80.0, 78.5, 250 / 3])


def record(task: int, tag: list[float], probe: dict[str, float] | None = None) -> dict[str, Any]:
    return {
        "kind": "task",
        "task": task,
        "tag": tag,
        "taw": tag,
        "classes": [5] * task,
        "task_identification": 50.0 + task,
        "probe": probe,
    }


def test_records_become_results_in_task_order_and_the_last_writing_counts() -> None:
    log = [
        {"kind": "epoch", "task": 1},
        record(2, [1.0, 2.0]),
        record(1, [90.0]),
        record(2, [70.0, 80.0], {"before": 31.0, "untrained": 22.0}),
        {"kind": "final"},
    ]
    results = results_from_records(log)
    assert results.tag == [[90.0], [70.0, 80.0]]
    assert results.classes == [5, 5]
    assert results.task_identification == [51.0, 52.0]
    assert results.probe == [None, (31.0, 22.0)]
    assert results_from_records([]) == EMPTY


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_explains_itself_in_one_sentence(name: str) -> None:
    title, sentence = describe(name)
    assert title
    assert sentence.endswith(".")
    assert len(sentence.split()) > 5


def test_predictions_by_hand() -> None:
    logits = [
        [9.0, 1.0, 0.0, 0.0],  # right
        [0.0, 2.0, 5.0, 0.0],  # label 1: another task wins, but told the task it is right
        [0.0, 0.0, 1.0, 3.0],  # label 2: wrong class of the right task
        [0.0, 0.0, 1.0, 3.0],  # right
    ]
    labels = [0, 1, 2, 3]
    for as_given in (np.asarray, torch.tensor):
        tag, taw, identification = accuracy_row(as_given(logits), as_given(labels), [2, 2])
        assert tag == [50.0, 50.0]
        assert taw == [100.0, 50.0]
        assert identification == 75.0


def test_tasks_may_differ_in_size() -> None:
    assert task_of_class([1, 3, 2]).tolist() == [0, 1, 1, 1, 2, 2]
    tag, taw, identification = accuracy_row(np.eye(6), np.arange(6), [1, 3, 2])
    assert tag == taw == [100.0, 100.0, 100.0]
    assert identification == 100.0


def test_bad_predictions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"logits must be \(2, 4\), got \(2, 3\)"):
        accuracy_row(np.zeros((2, 3)), [0, 1], [2, 2])
    with pytest.raises(GcabError, match="task 2 has no test images"):
        accuracy_row(np.zeros((2, 4)), [0, 1], [2, 2])


@st.composite
def predictions(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[int]]:
    classes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = np.repeat(np.arange(sum(classes)), draw(st.integers(1, 3)))
    logits = random.integers(0, 4, (len(labels), sum(classes)))  # few values, so ties are common
    return logits.astype(np.float32), labels, classes


@given(predictions())
def test_more_help_never_hurts(case: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[int]]) -> None:
    logits, labels, classes = case
    tag, taw, identification = accuracy_row(logits, labels, classes)
    assert all(aware >= agnostic for agnostic, aware in zip(tag, taw, strict=True))
    results = Results([tag], [taw], classes, [identification], [None])
    accuracy = METRICS["acc_tag"](results)
    assert accuracy is not None
    assert identification >= accuracy - 1e-9
    assert accuracy == pytest.approx(100 * float((logits.argmax(1) == labels).mean()))


@given(predictions(), st.randoms(use_true_random=False))
def test_the_order_of_images_does_not_matter(
    case: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[int]], random: Any
) -> None:
    logits, labels, classes = case
    order = list(range(len(labels)))
    random.shuffle(order)
    assert accuracy_row(logits[order], labels[order], classes) == accuracy_row(logits, labels, classes)


@given(st.integers(2, 6), st.randoms(use_true_random=False))
def test_forgetting_is_at_least_what_backward_transfer_lost(tasks: int, random: Any) -> None:
    matrix = [[random.uniform(0, 100) for _ in range(t)] for t in range(1, tasks + 1)]
    results = Results(matrix, matrix, [1] * tasks, [0.0] * tasks, [None] * tasks)
    lost, moved = METRICS["forgetting"](results), METRICS["backward_transfer"](results)
    assert lost is not None
    assert moved is not None
    assert lost >= -moved - 1e-9
