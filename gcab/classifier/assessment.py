"""What a lesson's held-out images tell of the model after it: how accurate it is, and how far it is to be trusted."""

from dataclasses import dataclass, replace

from gcab.classifier.calibration import Calibration
from gcab.classifier.forecast import forecast, no_better
from gcab.classifier.lesson import Lesson
from gcab.classifier.logits import HeldOutLogits, accuracy_of, all_held_out_logits, held_out_logits
from gcab.classifier.model import Knowledge


@dataclass(frozen=True)
class Assessment:
    """All that was measured of a model after a lesson."""

    held_out: HeldOutLogits | None  # of the lesson's held-out images
    accuracy: float | None  # per cent of those, among all classes
    expected: list[float | None]  # the accuracy to expect now of each task
    calibration: Calibration


def assess(lesson: Lesson, before: Knowledge) -> Assessment:
    """Measure the method that a lesson has trained; `before` is what the model knew until then."""
    method, material = lesson.method, lesson.material
    judged = None if material.held_out is None else held_out_logits(method, material.held_out, lesson.device)
    said = None if judged is None else all_held_out_logits(method, material.train, judged)
    calibration = before.calibration.outdated()
    if said is not None:
        newest = min(material.task.first, int(said.labels.min()))
        unit = method.unit / before.method.unit
        previous = replace(before.calibration, temperature=before.calibration.temperature * unit)
        calibration = Calibration.fit(*said, previous, newest, method.additive(lesson.config.options))
    return Assessment(
        held_out=judged,
        accuracy=None if judged is None else accuracy_of(*judged),
        expected=no_better(
            forecast(method, (*before.tasks, material.task), said, judged), before.tasks, before.taught, material.again
        ),
        calibration=calibration,
    )
