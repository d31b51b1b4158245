"""Names and classes put in order afterwards: renamed, or two made one."""

import copy
from collections.abc import Sequence
from dataclasses import replace

from gcab.classifier.forecast import forecast
from gcab.classifier.history import change
from gcab.classifier.model import Knowledge, Label, as_of_now, tasks_of
from gcab.data.folder import as_read
from gcab.errors import GcabError, unknown


def place_of(label: Label, labels: Sequence[Label]) -> int | None:
    """Where a class stands among all; None for one that is not known."""
    known = {as_read(str(name)): place for place, name in enumerate(labels)}
    return known.get(as_read(str(label)))


def known_place(label: Label, labels: Sequence[Label]) -> int:
    """The same for one that has to be known."""
    place = place_of(label, labels)
    if place is None:
        raise unknown("class", str(label), map(str, labels))
    return place


def renamed(known: Knowledge, old: Label, new: Label) -> Knowledge:
    """With another name for a class; nothing else changes, so all of it is exact."""
    place, other = known_place(old, known.labels), place_of(new, known.labels)
    if isinstance(new, str) and (not new.strip() or new != new.encode(errors="replace").decode()):
        raise GcabError(f"{new!r} cannot be the name of a class: give some text.")
    if other not in (None, place):
        raise GcabError(f"'{new}' is another class of this model: 'gcab join' makes one class of two.")
    before = str(known.labels[place])

    def names(of: Sequence[str]) -> list[str]:
        return [str(new) if name == before else name for name in of]

    text = f"{before} is called {new}"
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
    """With one class for two, and what of it is not as if both had been learned as one."""
    place, its = known_place(label, known.labels), known_place(other, known.labels)
    if place == its:
        raise GcabError(f"'{label}' cannot be joined with itself: name two classes.")
    method, name, gone = copy.deepcopy(known.method), str(known.labels[place]), str(known.labels[its])
    left = method.join(place, its)
    tasks = tasks_of([[kept for kept in task.names if kept != gone] for task in known.tasks])
    taught = tuple(
        replace(entry, classes=task.classes, again=tuple(dict.fromkeys(name if old == gone else old for old in again)))
        for entry, task, again in zip(known.taught, tasks, (entry.again for entry in known.taught), strict=True)
    )
    labels = (*known.labels[:its], *known.labels[its + 1 :])
    text = f"{gone} is part of {name}"
    return (
        known.become(
            method,
            known.config,
            known.calibration.outdated(),
            tasks=tasks,
            labels=labels,
            taught=as_of_now(taught, forecast(method, tasks)),
            changes=(*known.changes, change("joined", text, len(tasks), len(labels))),
        ),
        left,
    )
