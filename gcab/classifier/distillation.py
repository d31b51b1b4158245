"""From a model with a pass per task to GCAB-Fast with one: for a run, with its test figures, and for a model in use."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import torch
from torch import Tensor

from gcab.classifier.calibration import Calibration
from gcab.classifier.history import change
from gcab.classifier.logits import logits_of
from gcab.classifier.model import Knowledge
from gcab.classifier.photos import Photos
from gcab.classifier.unfinished import CHECKPOINT_SECONDS, Note, Unfinished, identity_of, place_beside, tidy, workplace
from gcab.config import Overrides, RunConfig, leaves, override
from gcab.data.tasks import OnProgress, Task, TaskImages, ignore
from gcab.errors import GcabError, unknown
from gcab.evaluation.metrics import ACCURACIES, results_from_records, summary, summary_of_part
from gcab.fast.folded import FoldedDecoder
from gcab.methods.distillation import softened_divergence
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.gcab_fast import GcabFast, GcabFastOptions, distill, fast_options
from gcab.methods.method import Method, parameter_count, state_bytes
from gcab.methods.one_pass import Halfway, Imitation
from gcab.parallel.devices import suitable_threads
from gcab.records import Accuracy, FastOptions, FastRecord, Measured
from gcab.runs.assemble import load_method, save_method
from gcab.runs.environment import environment, hardware
from gcab.runs.experiment import Data, data_of, make_evaluator
from gcab.runs.files import write_json
from gcab.runs.folder import RunFolder
from gcab.runs.model import GENERATION, digest_of, read_description

if TYPE_CHECKING:
    from gcab.classifier.learner import ContinualClassifier, Label

METHOD: Final = "gcab-fast"
HELD_OUT = 0.2  # of the last task's images, where the model is calibrated
CAPACITY = "options.capacity"
MEASURED = "fast.json"  # what a run's distillation writes beside the model
LEFT = {MEASURED, "model.json", "weights.safetensors", "lock"}  # all that it leaves in its folder
SHOWN: dict[Literal["acc_tag", "acc_taw"], str] = {"acc_tag": "ACC_TAG", "acc_taw": "ACC_TAW"}
NOTABLE = 1.0  # points of an accuracy: more than another device's rounding, or bfloat16's, makes of a model


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


def fast_folder(run: RunFolder, capacity: float) -> Path:
    """The folder of a run's distilled model."""
    return run.path / f"fast-{percent(capacity)}"


def require_finished(run: RunFolder) -> dict[str, Any]:
    """The final record of a run; a student of an unfinished run could later be taken for that of the whole."""
    final = run.final()
    if final is None:
        done = len({record["task"] for record in run.records("task")})
        raise GcabError(
            f"the run {run.path} has learned {done} of {len(run.tasks)} tasks: the command that started it continues "
            "it, then it can be distilled."
        )
    return final


def require_free(folder: Path, run: RunFolder | None = None) -> None:
    """Refuse a folder with anything in it but what a distillation left, such as an earlier one of the same run."""
    place, other = folder.resolve(), "choose another folder (--out), or move this one away."
    for above in (place, *place.parents):
        if above.exists() and not above.is_dir():
            raise GcabError(f"{above} is a file: choose a folder for the model.")
    found = [entry.name for entry in place.iterdir()] if place.exists() else []
    names = {name for name in found if not name.startswith(f".{MEASURED}.")}  # of a writer that was killed
    if any(name.startswith(GENERATION) for name in names):
        raise GcabError(f"{folder} keeps generations of a model: choose another folder, or teach it with 'gcab learn'.")
    if place.name == "model" and (place.parent / "config.json").is_file():
        raise GcabError(f"{folder} is a run's own model: choose another folder (--out).")
    if not os.access(next(above for above in (place, *place.parents) if above.exists()), os.W_OK):
        raise GcabError(f"there is no permission to write {folder}: choose another folder (--out).")
    if not names:
        return
    if "model.json" not in names:
        raise GcabError(f"{folder} is not empty and holds no model: {other}")
    if not (names <= LEFT and (MEASURED in names or (run is not None and unmeasured(place, run)))):
        if names <= LEFT and read_description(place)["config"]["method"] == METHOD:
            raise GcabError(f"{folder} holds a distilled model already: use it, {other}")
        raise GcabError(f"{folder} holds something else than a distilled run, which would be lost: {other}")


def unmeasured(folder: Path, run: RunFolder) -> bool:
    """Whether a distillation of this run was stopped when it had written its model and not yet what it measured."""
    own = folder.parent == run.path.resolve() and folder.name.startswith("fast-")
    if not (own or place_beside(folder).work.is_dir()):
        return False
    description = read_description(folder)
    return bool(description["config"]["method"] == METHOD and description["tasks"] == run.tasks)


def distill_run(
    run: RunFolder,
    root: Path | None,
    capacity: float,
    out: Path | None,
    device: torch.device,
    settings: Overrides | None = None,
    command: str = "",
    *,
    watch: OnProgress = ignore,
    note: Note = lambda _: None,
    give_up: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> FastRecord:
    """Distill a run's model with the training images of its last task; returns the test results of both models.

    The same run, images and settings a second time resume where the first was killed.
    """
    folder = out or fast_folder(run, capacity)
    recorded = require_finished(run)
    run.require_model()
    tidy(folder)
    require_free(folder, run)
    method, config, description = load_method(run.model)
    teacher, changed = prepare(method.to(device), config, capacity, settings)
    data = data_of(run, config, root)
    tasks = data.scenario.tasks[: len(description["tasks"])]
    images = data.scenario.open(tasks[-1], data.train).train().images
    facts = identity_of(Photos(images, [], ()).digest, digest_of(description), changed)
    with workplace(folder) as place:
        work = Unfinished(place, "distillation", facts, tasks[-1].names, note, give_up, checkpoint_seconds)
        student, distance = student_of(teacher, changed, images, watch, work)
        figures: FastRecord = {
            "run": str(run.path),
            "model": str(folder),
            "seed": config.seed,
            "options": cast(FastOptions, asdict(changed.options)),
            "images": len(images),
            "seconds": work.seconds(),
            "divergence": distance,
            "teacher": config.method,
            "recorded": only_accuracies(recorded),
            "gcab": measured(teacher, data, tasks, device),
            METHOD: measured(student, data, tasks, device),
        }
        save_method(folder, student, changed, tasks)
        write_json(folder / MEASURED, {**environment(), "command": command, **hardware(device), **figures})
    return figures


def measured(method: Method, data: Data, tasks: tuple[Task, ...], device: torch.device) -> Measured:
    """Accuracy on the test images of all tasks, in per cent, of the whole and of its parts alone; and size."""
    evaluator = make_evaluator(method, data, device)
    record, _, _ = evaluator.record(tasks, {})
    parts = {name: summary_of_part(record, part) for name, part in evaluator.parts(tasks).items()}
    return {
        **only_accuracies(summary(results_from_records([record]))),
        "views": {name: only_accuracies(result) for name, result in parts.items()},
        "capacity": method.capacity(),
        "parameters": parameter_count(method),
        "bytes": state_bytes(method),
    }


def only_accuracies(result: Mapping[str, Any]) -> Accuracy:
    """The metrics of a single evaluation; the others need those after earlier tasks."""
    return cast(Accuracy, {name: result[name] for name in ACCURACIES})


def head_divergence(teacher: Gcab, student: GcabFast, images: Tensor) -> float:
    """KL(teacher || student) of their heads alone, a mean over the images as they are, at temperature 1."""
    heads = [method.heads(FoldedDecoder(method.network)) for method in (teacher, student)]
    device = teacher.network.gate_in.used.device
    wanted, given = (logits_of(teacher, images, device, decide) for decide in heads)
    return float(softened_divergence(given, wanted, temperature=1.0))


def departs(measured: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether a model's accuracies differ from those in its run's log."""
    return any(abs(measured[name] - recorded[name]) > NOTABLE for name in SHOWN)


def departure(figures: FastRecord) -> str | None:
    """A warning if they do, from the figures of `distill_run`; else None."""
    if not departs(figures["gcab"], figures["recorded"]):
        return None
    now = " and ".join(f"{title} {figures['gcab'][name]:.2f} %" for name, title in SHOWN.items())
    then = " and ".join(f"{figures['recorded'][name]:.2f} %" for name in SHOWN)
    return (
        f"The run's model reaches {now} here, where its log has {then}: these are not the images it was tested on, "
        f"or it has changed since; see that --data is the run's own ({MEASURED} keeps both)."
    )


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
        wrong = f"'{strange[0]}' is not among them" if strange else f"'{missing[0]}' is missing"
        names = ", ".join(map(str, position))
        raise GcabError(f"distillation needs images of the classes learned last ({names}), but {wrong}.")
    return torch.tensor([position[label] for label in labels])
