"""A dry run of a lesson: nothing is written, and its duration is estimated from a few photos."""

import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.lesson import Lesson, Material
from gcab.classifier.model_folder import ModelFolder
from gcab.classifier.photos import Photos
from gcab.classifier.wishes import HELD_OUT, Wishes, beside, files_of, new_learner, require_others, stored_learner
from gcab.config import RunConfig
from gcab.sizes import Size

TRIED = 8  # photos of each class in the lesson that is timed


@dataclass(frozen=True)
class Plan:
    """What `teach` would do."""

    model: str
    generation: int  # that it would write
    classes: tuple[str, ...]  # new ones
    again: tuple[str, ...]  # known before, with more photos
    photos: dict[str, int]  # of each class
    held_out: int
    skipped: tuple[str, ...]  # a sentence for each photo that cannot be read
    beside: tuple[str, ...]  # and for each new class that has a known one's name but for capitals
    disputed: str | None  # a sentence about photos that are in two classes
    image_size: Size
    mirrors: bool  # an image and its mirror image would count as the same
    method: str
    epochs: int  # at most
    device: str
    estimated_seconds: float


def plan(model: str | Path, photos: str | Path, **wishes: Unpack[Wishes]) -> Plan:
    """Refuse what `teach` would refuse, else say what it would do."""
    folder = ModelFolder(model)
    folder.check_writable()
    files, names = files_of(photos, wishes.get("labels"))
    known = folder.generation is not None
    learner = stored_learner(folder.path, wishes) if known else new_learner(files, wishes)
    started = time.monotonic()
    found = Photos.read(files, names, learner.image_size, wishes.get("skip_unreadable", False))
    reading = time.monotonic() - started
    require_others(learner, found)
    config, material = learner.material(found.pixels, found.labels, wishes.get("held_out", HELD_OUT))
    lesson, seconds = estimate(learner, config, material, wishes.get("patience"))
    return Plan(
        model=str(folder.path),
        generation=(folder.generation or 0) + 1,
        classes=material.task.names,
        again=tuple(material.again.values()),
        photos=dict(Counter(found.labels)),
        held_out=len(material.places),
        skipped=found.unreadable,
        beside=beside(material.task.names, learner.classes),
        disputed=found.disputed,
        image_size=config.scenario.image_size,
        mirrors=lesson.method.setting.mirrors,
        method=config.method,
        epochs=lesson.planned,
        device=str(learner.device),
        estimated_seconds=round(reading + seconds, 1),
    )


def estimate(
    learner: ContinualClassifier, config: RunConfig, material: Material, patience: int | None
) -> tuple[Lesson, float]:
    """A lesson of a few photos, and the estimated seconds of the whole: a fixed part, and one for each photo."""
    times, trials = list[float](), list[Lesson]()
    for count in (1, TRIED):
        some = replace(material, train=material.train.some_of_each(count))
        started = time.perf_counter()
        trials.append(learner.lesson_of(config, some, patience))
        times.append(time.perf_counter() - started)
    lesson, every = trials[-1], material.train.labels
    one, few = (len(trial.material.train.labels) for trial in trials)
    each = max(0.0, times[1] - times[0]) / max(1, few - one)
    training = lesson.estimate() * len(every) / few + lesson.estimate_ending(material.train.images)
    return lesson, times[0] + each * (len(every) - one) + training
