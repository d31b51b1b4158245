"""From a model with a pass per task to GCAB-Fast with one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from gcab.classifier.calibration import Calibration
from gcab.classifier.history import change
from gcab.classifier.logits import logits_of
from gcab.classifier.model import Knowledge
from gcab.classifier.photos import Photos
from gcab.classifier.unfinished import Unfinished, identity_of
from gcab.config import Overrides, RunConfig, leaves, override
from gcab.data.tasks import OnProgress, TaskImages, ignore
from gcab.errors import GcabError, unknown
from gcab.fast.folded import FoldedDecoder
from gcab.methods.distillation import softened_divergence
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.gcab_fast import GcabFast, GcabFastOptions, distill, fast_options
from gcab.methods.method import Method
from gcab.methods.one_pass import Halfway, Imitation
from gcab.parallel.devices import suitable_threads

if TYPE_CHECKING:
    from gcab.classifier.learner import ContinualClassifier, Label

METHOD: Final = "gcab-fast"
HELD_OUT = 0.2  # of the last task's images, where the model is calibrated
CAPACITY = "options.capacity"


def prepare(
    method: Method, config: RunConfig, capacity: float, settings: Overrides | None = None
) -> tuple[Gcab, RunConfig]:
    """The teacher and the settings of its student; raises an error for what cannot be distilled."""
    if not isinstance(method, Gcab):
        raise GcabError(f"a model of the method {config.method} has no passes to distill: only gcab has.")
    known = distillation_settings(config.profile)
    for key in settings or {}:
        if key == CAPACITY:
            raise GcabError(f"the capacity is given by itself, not as the setting {CAPACITY}: use --capacity.")
        if key not in known:
            raise unknown("setting of a distillation", key, known)
    changed = replace(config, method=METHOD, options=fast_options(method.options, capacity=capacity))
    if isinstance(method, GcabFast) and method.uses(capacity):
        raise GcabError(
            f"this model is one pass with a capacity of {percent(capacity)} % already: "
            "to distill it once more would gain nothing, unless to another --capacity."
        )
    own = {} if isinstance(method, GcabFast) else known  # a student has chosen before
    return method, override(changed, {**own, **(settings or {})})


def distillation_settings(profile: str) -> dict[str, Any]:
    """A profile's settings of a distillation, without those of a run; the capacity is given separately."""
    options = override(RunConfig(options=GcabFastOptions()), GcabFast.profiles.get(profile, {})).options
    of_run = {key for key, _, _ in leaves(GcabOptions(), "options.")}
    return {key: value for key, _, value in leaves(options, "options.") if key not in of_run and key != CAPACITY}


def student_of(
    teacher: Gcab, config: RunConfig, images: Tensor, watch: OnProgress = ignore, work: Unfinished | None = None
) -> tuple[GcabFast, float]:
    """The student that the settings ask for, and its divergence from the teacher, which is not changed.

    With `work` it resumes from the checkpoint of a killed process.
    """

    def after_step(done: Imitation) -> None:
        if work is not None and work.is_due:
            work.save({"step": done.steps}, done.state())

    with suitable_threads(teacher.network.gate_in.used.device, config.features_per_batch()):
        halfway = None if work is None else continued(work)
        student = distill(teacher, images, config.options, config.seed, watch, halfway, after_step)
        distance = head_divergence(teacher, student, images)
    if not math.isfinite(distance):
        if work is not None:
            work.folder.discard_work()  # to resume it would lead here again
        raise GcabError(
            f"the student has lost its way (KL {distance}): give a lower learning rate than "
            f"{student.options.distillation_lr:g}, as with "
            f"--set options.distillation_lr={student.options.distillation_lr / 10:g}."
        )
    return student, distance


def continued(work: Unfinished) -> Halfway | None:
    """The state that a distillation resumes from; None: it starts from the beginning."""
    checkpoint = work.restore()
    if checkpoint is None or not checkpoint.position["step"]:
        work.save({"step": 0}, {})
        return None
    work.note(f"continuing after step {checkpoint.position['step']}")
    return Halfway(checkpoint.position["step"], checkpoint.state)


def percent(capacity: float) -> str:
    """A share in per cent, without the noise of binary fractions."""
    return f"{round(100 * capacity, 6):g}"


def head_divergence(teacher: Gcab, student: GcabFast, images: Tensor) -> float:
    """KL(teacher || student) of their heads alone, a mean over the images as they are, at temperature 1."""
    heads = [method.heads(FoldedDecoder(method.network)) for method in (teacher, student)]
    device = teacher.network.gate_in.used.device
    wanted, given = (logits_of(teacher, images, device, decide) for decide in heads)
    return float(softened_divergence(given, wanted, temperature=1.0))


class Distillation:
    """Distills a model in use into one pass, with images (n, 3, S, S) of its last task; does not change the model.

    Labels are needed only to see that these are the right images, and to calibrate a model again that was calibrated.
    """

    def __init__(
        self,
        model: "ContinualClassifier",
        pixels: Tensor,
        labels: Sequence["Label"] | None,
        capacity: float,
        settings: Overrides | None = None,
    ) -> None:
        """Raises an error for what cannot be distilled."""
        self.known, self.device, self.pixels, self.labels = model.known, model.device, pixels, labels
        self.teacher, self.config = prepare(model.method, model.config, capacity, settings)
        self.train, self.held_out = pixels, None
        if labels is None:
            return
        if len(labels) != len(pixels):
            raise GcabError(f"{len(pixels)} images but {len(labels)} labels: give one label per image, or none.")
        data = TaskImages(pixels, labels_in(model, labels))
        train, self.held_out = data.divided(HELD_OUT if model.calibration.images else 0.0)
        self.train = train.images

    @cached_property
    def facts(self) -> dict[str, str | None]:
        """What identifies this distillation: photos, settings and the model before it."""
        photos = Photos(self.pixels, [*map(str, self.labels or ())], ())
        return identity_of(photos.digest, self.known.digest, self.config)

    @property
    def classes(self) -> list[str]:
        """The classes that it has images of."""
        return sorted({*map(str, self.labels or ())})

    def run(self, watch: OnProgress = ignore, work: Unfinished | None = None) -> Knowledge:
        """The model afterwards; `work` keeps the checkpoints."""
        student, _ = student_of(self.teacher, self.config, self.train, watch, work)
        known, share = self.known, f"{percent(self.config.options.capacity)} % of the decoder's units"
        text, name = f"one pass for all tasks, {share}", None if work is None else work.name
        made = change("distilled", text, len(known.tasks), len(known.labels), name)
        return known.become(student, self.config, self.calibration(student), changes=(*known.changes, made))

    def calibration(self, student: GcabFast) -> Calibration:
        """The model's calibration, fitted again to the held-out images."""
        before, held_out = self.known.calibration, self.held_out
        if held_out is None:
            return before
        logits = logits_of(student, held_out.images, self.device)
        others = max(0, before.images - len(logits))  # the calibration before rests on these images as well
        newest = min(self.known.tasks[-1].first, int(held_out.labels.min()))
        return Calibration.fit(logits, held_out.labels, replace(before, images=others), newest, steady=False)


def labels_in(model: "ContinualClassifier", labels: Sequence["Label"]) -> Tensor:
    """Labels as positions in the order of arrival; they must be all the classes of the last lesson and no other."""
    first, again = model.tasks[-1].first, model.taught[-1].again
    position = {label: place for place, label in enumerate(model.classes) if place >= first or str(label) in again}
    strange = sorted(str(label) for label in set(labels) - position.keys())
    missing = sorted(str(label) for label in position.keys() - set(labels))
    if strange or missing:
        wrong = f"'{strange[0]}' is not among them: leave it out" if strange else f"'{missing[0]}' is missing: add it"
        names = ", ".join(map(str, position))
        raise GcabError(f"distillation needs images of the classes learned last ({names}), but {wrong}.")
    return torch.tensor([position[label] for label in labels])
