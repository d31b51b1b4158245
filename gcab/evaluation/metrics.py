"""What a run achieved, as pure functions of its accuracy matrix.

R[t][s] is the accuracy in per cent on task s after learning task t (both from 1), T the last task learned.
Task-agnostic (TAG): the model chooses among all classes seen. Task-aware (TAW): it is told the task of each image.

A metric is one function in this file and one entry in `METRICS`; tables and reports walk that table. Its docstring
opens with "Title: one sentence in plain words.", which is what they show; the definition follows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from gcab.errors import GcabError
from gcab.records import TaskRecord


@dataclass(frozen=True)
class Results:
    """The accuracy matrices of a run; one row per task learned, or a single row of length T for joint training."""

    tag: list[list[float]]
    taw: list[list[float]]
    classes: list[int]  # classes per task
    task_identification: list[float]  # one value per row
    probe: list[tuple[float, float] | None]  # per row: (before the task, with an untrained encoder)

    @property
    def joint(self) -> bool:
        """All tasks were learned at once, so there is no history to forget."""
        return len(self.tag) == 1 and len(self.tag[0]) > 1


class Description(NamedTuple):
    """How a metric is shown to people: its short title and one plain sentence."""

    title: str
    sentence: str


def acc_tag(results: Results) -> float | None:
    """ACC_TAG: the share of test images named correctly after the last task, choosing among all classes ever learned.

    Mean over all classes, the paper's (1/N) Σ a: the last row weighted by the number of classes of each task.
    """
    return incremental_tag(results)[-1] if results.tag else None


def acc_taw(results: Results) -> float | None:
    """ACC_TAW: the same when the model is told which task each image belongs to, so it chooses among fewer classes.

    Mean over tasks, the paper's (1/T) Σ a_t: the unweighted mean of the last row.
    """
    return incremental_taw(results)[-1] if results.taw else None


def average_incremental_accuracy(results: Results) -> float | None:
    """Average incremental accuracy: ACC_TAG measured after every task, not only after the last, and averaged.

    (1/T) Σ_t ACC_TAG(t); for joint training, which has one row, it equals ACC_TAG.
    """
    return _mean(incremental_tag(results))


def forgetting(results: Results) -> float | None:
    """Forgetting: how many points an earlier task has lost, on average, since its best moment; lower is better.

    Chaudhry et al. 2018: mean over s < T of max_{s <= t < T} R[t][s] - R[T][s], task-agnostic. Undefined with one row.
    """
    return _forgetting(results.tag)


def forgetting_taw(results: Results) -> float | None:
    """Forgetting, task-aware: the points lost since the best moment when the task of each image is given.

    As `forgetting`, on the task-aware matrix: it counts what is lost within a task, not to the classes of others.
    """
    return _forgetting(results.taw)


def backward_transfer(results: Results) -> float | None:
    """Backward transfer: how learning later tasks changed earlier ones, in points; negative means forgetting.

    Lopez-Paz and Ranzato 2017: mean over s < T of R[T][s] - R[s][s], task-agnostic. Undefined with one row.
    """
    return _backward_transfer(results.tag)


def backward_transfer_taw(results: Results) -> float | None:
    """Backward transfer, task-aware: the same change when the task of each image is given.

    As `backward_transfer`, on the task-aware matrix; here a gain is possible, since no classes are added to the choice.
    """
    return _backward_transfer(results.taw)


def forward_transfer(results: Results) -> float | None:
    """Forward transfer: how much better than an untrained model it tells new classes apart before learning them.

    Mean over tasks t >= 2 of (nearest-class-mean accuracy of task t's images before learning it) - (the same with an
    untrained encoder), over the tasks where it was measured.
    """
    return _mean([before - untrained for before, untrained in filter(None, results.probe[1:])])


def task_identification(results: Results) -> float | None:
    """Task identification: the share of test images whose predicted class at least belongs to the right task.

    After the last task, task-agnostic, as a share of images. It bounds from above the share of images named correctly,
    which is ACC_TAG where every class has the same number of test images.
    """
    return results.task_identification[-1] if results.task_identification else None


METRICS: dict[str, Callable[[Results], float | None]] = {
    metric.__name__: metric
    for metric in (
        acc_tag,
        acc_taw,
        average_incremental_accuracy,
        forgetting,
        forgetting_taw,
        backward_transfer,
        backward_transfer_taw,
        forward_transfer,
        task_identification,
    )
}
ACCURACIES = ("acc_tag", "acc_taw", "task_identification")  # what one model has, without the history of a run


def describe(name: str) -> Description:
    """The title and sentence a metric's docstring opens with, so that adding a metric needs no second edit."""
    opening = (METRICS[name].__doc__ or f"{name}: .").partition("\n")[0]
    title, _, sentence = opening.partition(": ")
    return Description(title, sentence)


def summary(results: Results) -> dict[str, float | None]:
    """Every metric of a run, as its final record keeps them."""
    return {name: metric(results) for name, metric in METRICS.items()}


def incremental_tag(results: Results) -> list[float]:
    """ACC_TAG after each task: the mean over all classes seen by then."""
    return [float(np.average(row, weights=results.classes[: len(row)])) for row in results.tag]


def incremental_taw(results: Results) -> list[float]:
    """ACC_TAW after each task: the mean over the tasks seen by then."""
    return [float(np.mean(row)) for row in results.taw]


def task_records(records: Iterable[Mapping[str, Any]]) -> list[TaskRecord]:
    """The task records of a run in order; a task repeated after an interruption counts once, as last written."""
    latest = {record["task"]: record for record in records if record["kind"] == "task"}
    return [cast(TaskRecord, latest[task]) for task in sorted(latest)]


def results_from_records(records: Iterable[Mapping[str, Any]]) -> Results:
    """Read the accuracy matrices back from a run's log, finished or not."""
    tasks = task_records(records)
    probes = [task.get("probe") for task in tasks]
    return Results(
        tag=[list(task["tag"]) for task in tasks],
        taw=[list(task["taw"]) for task in tasks],
        classes=list(tasks[-1]["classes"]) if tasks else [],
        task_identification=[task["task_identification"] for task in tasks],
        probe=[(probe["before"], probe["untrained"]) if probe else None for probe in probes],
    )


def task_of_class(classes_per_task: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The task index (from 0) of every class label; labels count through the tasks in order."""
    return np.repeat(np.arange(len(classes_per_task)), classes_per_task)  # (K,)


def accuracy_row(
    logits: ArrayLike, labels: ArrayLike, classes_per_task: Sequence[int]
) -> tuple[list[float], list[float], float]:
    """One row of both matrices and the task identification, from the predictions on all test images seen so far.

    TAG takes the argmax over all classes, TAW over the classes of the label's own task; task identification is the
    share of images whose TAG prediction lies in the right task. A tie goes to the lower label in both.
    """
    scores, truth = np.asarray(logits), np.asarray(labels)  # (n, K), (n,)
    task = task_of_class(classes_per_task)
    if scores.shape != (len(truth), len(task)):
        raise ValueError(f"logits must be ({len(truth)}, {len(task)}), got {scores.shape}")
    image_task = task[truth]  # (n,)
    agnostic = scores.argmax(axis=1)
    aware = np.where(task == image_task[:, None], scores, -np.inf).argmax(axis=1)
    tag, taw = [], []
    for index in range(len(classes_per_task)):
        mine = image_task == index
        if not mine.any():
            raise GcabError(f"task {index + 1} has no test images: its accuracy is undefined.")
        tag.append(_per_cent(agnostic[mine] == truth[mine]))
        taw.append(_per_cent(aware[mine] == truth[mine]))
    return tag, taw, _per_cent(task[agnostic] == image_task)


def _forgetting(matrix: list[list[float]]) -> float | None:
    *before, last = matrix or [[]]
    return _mean([max(row[s] for row in before[s:]) - last[s] for s in range(len(before))])


def _backward_transfer(matrix: list[list[float]]) -> float | None:
    *before, last = matrix or [[]]
    return _mean([last[s] - row[s] for s, row in enumerate(before)])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _per_cent(hits: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    return 100.0 * float(hits.mean())


def summary_of_part(record: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """The summary after a task, had a part of the method decided alone."""
    return summary(results_from_records([{**record, **part}]))
