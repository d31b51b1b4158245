"""The accuracy to expect now of every lesson, also of those whose photos are gone."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from statistics import mean

import torch
from torch import Tensor

from gcab.classifier.logits import HeldOutLogits, accuracy_of
from gcab.classifier.model import Taught
from gcab.data.tasks import Task
from gcab.methods.method import Method

MUCH = 15.0  # points that an earlier task may lose without a warning
APART = 2  # pseudo-count of classes that shrinks the correction of the estimate towards 0
SUREST = 0.99  # estimates are clamped to at most this before they are corrected by held-out photos


@torch.inference_mode()
def forecast(
    method: Method,
    tasks: tuple[Task, ...],
    said: HeldOutLogits | None = None,
    judged: HeldOutLogits | None = None,
) -> list[float | None]:
    """Expected accuracy on new photos of each task among all classes, in per cent; None where there is no estimate.

    `judged` are the held-out photos of the newest task, `said` has those beside them that could be left out: of the
    newest task, both tell, as the held-out photos alone are few. Photos of earlier tasks are gone: their classes are
    estimated by `Method.expected`, corrected by its error for the classes of the photos in `said`. So are classes of
    the newest task that are too small for a held-out photo. Photos of classes known before count for the newest task
    only where it has no others.
    """
    newest, expected = tasks[-1], method.expected()
    if expected is None:
        return [*[None] * (len(tasks) - 1), None if judged is None else accuracy_on(newest, judged)]
    odds = torch.logit(expected.cpu().clamp(1 - SUREST, SUREST))
    if said is not None:
        odds += correction(odds, said)
    share = 100 * odds.sigmoid()
    found: list[float | None] = [
        float(share[task.first : task.first + task.classes].mean()) if task.classes else None for task in tasks
    ]
    if judged is not None:
        watched = judged.labels.unique().tolist()
        right = {label: accuracy_of(*of_classes([label], said or judged)) for label in watched}
        found[-1] = mean(right.get(label, float(share[label])) for label in newest.labels or watched)
    return found


def accuracy_on(newest: Task, judged: HeldOutLogits) -> float:
    """Accuracy on the held-out photos of a task's own classes, or of all where there are none of those."""
    own = of_classes(newest.labels, judged)
    return accuracy_of(*(own if len(own.labels) else judged))


def of_classes(labels: Iterable[int], said: HeldOutLogits) -> HeldOutLogits:
    """The logits of photos of these classes."""
    chosen = torch.isin(said.labels, torch.tensor([*labels]))
    return HeldOutLogits(said.logits[chosen], said.labels[chosen])


def correction(odds: Tensor, said: HeldOutLogits) -> float:
    """The shift of the estimated log odds that fits the classes with photos, shrunk towards 0 the fewer they are.

    Classes differ in it, however many photos they have: from four of them, two thirds of it apply to others.
    """
    classes = len(said.labels.unique())
    right = int((said.logits.argmax(dim=1) == said.labels).sum())
    return likeliest_shift(odds[said.labels], right) * classes / (classes + APART)


def likeliest_shift(odds: Tensor, right: int) -> float:
    """The maximum-a-posteriori shift b ~ N(0, 1) of these log odds, given how many photos were classified correctly.

    It solves right = Σ σ(odds + b) + b, so a photo that was missed as expected hardly changes it.
    """
    low, high = -float(len(odds)), float(len(odds))
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if float((odds + middle).sigmoid().sum()) + middle < right else (low, middle)
    return high


def no_better(
    expected: Sequence[float | None], tasks: Sequence[Task], taught: Sequence[Taught], again: Collection[int]
) -> list[float | None]:
    """Estimates after a lesson that do not rise for earlier tasks, as more classes make no older one easier.

    One may rise if there were more photos of its classes, whose labels are `again`.
    """
    found = list(expected)
    for task, entry in zip(tasks, taught, strict=True):
        now, more = found[task.index], not set(again).isdisjoint(range(task.first, task.first + task.classes))
        if now is not None and entry.now is not None and not more:
            found[task.index] = min(now, entry.now)
    return found


def losses(before: Sequence[Taught], after: Sequence[Taught]) -> Iterator[str]:
    """A warning for each earlier task that is expected to have lost much by a lesson."""
    for number, (then, now) in enumerate(zip(before, after, strict=False), start=1):
        if then.now is not None and now.now is not None and then.now - now.now > MUCH:
            yield (
                f"task {number} is expected to be right {now.now:.0f} % of the time now, {then.now:.0f} % before this "
                "lesson (an estimate): 'gcab undo' takes the lesson back"
            )
