"""Names and classes put in order afterwards: renamed, forgotten, or two made one."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from gcab.classifier.calibration import Calibration
from gcab.classifier.forecast import forecast
from gcab.classifier.history import Change, change
from gcab.classifier.model import Knowledge, Label, as_of_now, tasks_of
from gcab.data.folder import as_read
from gcab.data.tasks import Task
from gcab.errors import GcabError, unknown
from gcab.methods.method import Method
from gcab.model.lesson_cache import cached_results

SAID = {"renamed": " is called ", "joined": " is part of "}  # between two names


def place_of(label: Label, labels: Sequence[Label]) -> int | None:
    """The index of a class among all; None for one that is not known."""
    known = {as_read(str(name)): place for place, name in enumerate(labels)}
    return known.get(as_read(str(label)))


def known_place(label: Label, labels: Sequence[Label]) -> int:
    """The index of a class; raises an error for one that is not known."""
    place = place_of(label, labels)
    if place is None:
        raise unknown("class", str(label), map(str, labels))
    return place


def renamed(known: Knowledge, old: Label, new: Label) -> Knowledge:
    """The model with another name for a class; nothing else changes."""
    place, other = known_place(old, known.labels), place_of(new, known.labels)
    if isinstance(new, str) and (not new.strip() or new != new.encode(errors="replace").decode()):
        raise GcabError(f"{new!r} cannot be the name of a class: give some text.")
    if str(new) == str(known.labels[place]):
        raise GcabError(f"'{new}' is the name of this class already: give another.")
    if other not in (None, place):
        raise GcabError(f"'{new}' is another class of this model: 'gcab join' makes one class of two.")
    before = str(known.labels[place])

    def names(of: Sequence[str]) -> list[str]:
        return [str(new) if name == before else name for name in of]

    text = f"{before}{SAID['renamed']}{new}"
    return replace(
        known,
        tasks=tasks_of([names(task.names) for task in known.tasks]),
        labels=(*known.labels[:place], new, *known.labels[place + 1 :]),
        taught=tuple(replace(entry, again=tuple(names(entry.again))) for entry in known.taught),
        changes=(*known.changes, change("renamed", text, len(known.tasks), len(known.labels))),
        generation=None,
        digest=None,
    )


def joined(known: Knowledge, label: Label, other: Label) -> tuple[Knowledge, tuple[str, ...]]:
    """The model with two classes merged into one, and in words what is not as if they had been learned as one."""
    place, its = known_place(label, known.labels), known_place(other, known.labels)
    if place == its:
        raise GcabError(f"'{label}' cannot be joined with itself: name two classes.")
    method, name, gone = copy.deepcopy(known.method), str(known.labels[place]), str(known.labels[its])
    made = change("joined", f"{gone}{SAID['joined']}{name}", len(known.tasks), len(known.labels) - 1)
    with cached_results(method):
        left = method.join(place, its)
        return without(known, its, method, {gone: name}, (*known.changes, made)), left


def forgotten(known: Knowledge, label: Label, images: Tensor | None) -> tuple[Knowledge, tuple[str, ...]]:
    """The model without a class, and in words what is left of it; `images`: all it was learned from, uint8."""
    place = known_place(label, known.labels)
    if len(known.labels) == 1:
        raise GcabError(f"'{label}' is the only class of this model: delete the model to forget it.")
    method, name = copy.deepcopy(known.method), str(known.labels[place])
    text = f"a class of lesson {task_of(place, known.tasks)}"
    made = change("forgot", text, len(known.tasks), len(known.labels) - 1)
    with cached_results(method):
        left = method.forget(place, images)
        if known.calibration != Calibration():
            left = (*left, "one temperature for the probabilities of all classes")
        return without(known, place, method, {}, (*nameless(known.changes, name), made)), left


def nameless(changes: Sequence[Change], name: str) -> list[Change]:
    """Changes without those that contain any name of a class, or of one that was joined into it."""
    gone, kept = {name}, list[Change]()
    for made in reversed(changes):
        before, _, after = made.text.partition(SAID.get(made.kind, "\n"))
        if after in gone:
            gone.add(before)
        else:
            kept.insert(0, made)
    return kept


def without(
    known: Knowledge, place: int, method: Method, instead: Mapping[str, str], changes: Sequence[Change]
) -> Knowledge:
    """The model without a class, around a method that lacks it already; `instead` replaces its name in lessons."""
    gone = str(known.labels[place])
    tasks = tasks_of([[name for name in task.names if name != gone] for task in known.tasks])
    taught = []
    for entry, task in zip(known.taught, tasks, strict=True):
        names = [instead.get(name, name) for name in entry.again if name != gone or name in instead]
        taught.append(replace(entry, classes=task.classes, again=tuple(dict.fromkeys(names))))
    return known.become(
        method,
        known.config,
        known.calibration.outdated(),
        tasks=tasks,
        labels=(*known.labels[:place], *known.labels[place + 1 :]),
        taught=as_of_now(taught, forecast(method, tasks)),
        changes=tuple(changes),
    )


def task_of(place: int, tasks: Sequence[Task]) -> int:
    """The number of the lesson, from 1, that a class was learned in."""
    return next(task.index + 1 for task in tasks if place in task.labels)
