"""From a model with a pass per task to GCAB-Fast with one: for a run, with its test figures, and for a model in use."""

import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gcab.assemble import load_method, save_method
from gcab.calibration import Calibration
from gcab.config import Overrides, RunConfig, override
from gcab.devices import suitable_threads
from gcab.errors import GcabError, unknown
from gcab.evaluation.metrics import results_from_records, summary
from gcab.experiment import Data, load_data, make_evaluator
from gcab.lesson import Lesson, logits_of
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.gcab_fast import GcabFast, GcabFastOptions, Watch, distill, fast_options, ignore
from gcab.methods.method import Method, Task, TaskImages, parameter_count, state_bytes
from gcab.runs.files import write_json
from gcab.runs.folder import RunFolder, device_name, environment

if TYPE_CHECKING:
    from gcab.learner import ContinualClassifier, Label

METHOD = "gcab-fast"
HELD_OUT = 0.2  # of the last task's images, where the model is calibrated


def distil(
    method: Method,
    config: RunConfig,
    images: Tensor,
    capacity: float,
    settings: Overrides | None = None,
    watch: Watch = ignore,
) -> tuple[GcabFast, RunConfig]:
    """The student and its settings; the teacher is not touched."""
    if not isinstance(method, Gcab):
        raise GcabError(f"a model of the method {config.method} has no passes to distil: only gcab has.")
    own = {item.name for item in fields(GcabFastOptions)} - {item.name for item in fields(GcabOptions)}
    known = [f"options.{name}" for name in own]
    for key in settings or {}:
        if key not in known:
            raise unknown("setting of a distillation", key, known)
    changed = replace(config, method=METHOD, options=fast_options(method.options, capacity=capacity))
    changed = override(changed, settings or {})
    with suitable_threads(method.network.gate_in.used.device, config.features_per_batch()):
        return distill(method, images, changed.options, config.seed, watch), changed


def distil_run(
    run: RunFolder,
    root: Path | None,
    capacity: float,
    out: Path | None,
    device: torch.device,
    settings: Overrides | None = None,
    command: str = "",
    watch: Watch = ignore,
) -> dict[str, Any]:
    """Distil a run's model with the training images of its last task; what both models do with the test images."""
    teacher, config, description = load_method(run.model)
    data = load_data(config, root)
    if [list(task.names) for task in data.scenario.tasks] != run.tasks:
        raise GcabError(f"the data in {root} has other classes than the run {run.path} was trained on: give its own.")
    tasks = data.scenario.tasks[: len(description["tasks"])]
    images = data.scenario.open(tasks[-1], data.train).train().images
    started = time.perf_counter()
    student, changed = distil(teacher.to(device), config, images, capacity, settings, watch)
    seconds = time.perf_counter() - started
    folder = out or run.path / f"fast-{100 * capacity:.0f}"
    figures = {
        **environment(),
        "command": command,
        "device": device_name(device),
        "run": str(run.path),
        "model": str(folder),
        "seed": config.seed,
        "options": asdict(changed.options),
        "images": len(images),
        "seconds": seconds,
        "gcab": measured(teacher, data, tasks, device),
        METHOD: measured(student, data, tasks, device),
    }
    save_method(folder, student, changed, tasks)
    write_json(folder / "fast.json", figures)
    return figures


def measured(method: Method, data: Data, tasks: tuple[Task, ...], device: torch.device) -> dict[str, Any]:
    """Accuracy on the test images of all tasks, in per cent, and size."""
    record, _, _ = make_evaluator(method, data, device).record(tasks, {})
    result = summary(results_from_records([record]))
    return {
        **{name: result[name] for name in ("acc_tag", "acc_taw", "task_identification")},
        "capacity": method.capacity(),
        "parameters": parameter_count(method),
        "bytes": state_bytes(method),
    }


def distilled(
    model: "ContinualClassifier",
    pixels: Tensor,
    labels: Sequence["Label"] | None,
    capacity: float,
    settings: Overrides | None = None,
    watch: Watch = ignore,
) -> tuple[GcabFast, RunConfig, Calibration]:
    """What a model becomes: its method, settings and calibration, from images (n, 3, S, S) of its last task.

    Labels are needed only to see that these are the right images, and to calibrate a model again that was calibrated.
    """
    if labels is None:
        student, config = distil(model.method, model.config, pixels, capacity, settings, watch)
        return student, config, model.calibration
    if len(labels) != len(pixels):
        raise GcabError(f"{len(pixels)} images but {len(labels)} labels: give one label per image, or none.")
    data = TaskImages(pixels, labels_in(model, labels))
    lesson = Lesson.divide(model.tasks[-1], data, HELD_OUT if model.calibration.images else 0.0)
    student, config = distil(model.method, model.config, lesson.train.images, capacity, settings, watch)
    if lesson.held_out is None:
        return student, config, model.calibration
    held_out = lesson.held_out
    logits = logits_of(student, held_out.images, model.device)
    others = max(0, model.calibration.images - len(logits))  # the calibration before rests on these images as well
    before = replace(model.calibration, images=others)
    return student, config, Calibration.fit(logits, held_out.labels, previous=before)


def labels_in(model: "ContinualClassifier", labels: Sequence["Label"]) -> Tensor:
    """Labels as positions in the order of arrival; they must be all the classes of the last task and no other."""
    first = model.tasks[-1].first
    position = {label: first + index for index, label in enumerate(model.classes[first:])}
    strange = sorted(str(label) for label in set(labels) - position.keys())
    missing = sorted(str(label) for label in position.keys() - set(labels))
    if strange or missing:
        wrong = f"'{strange[0]}' is not among them" if strange else f"'{missing[0]}' is missing"
        names = ", ".join(map(str, position))
        raise GcabError(f"distillation needs images of the classes learned last ({names}), but {wrong}.")
    return torch.tensor([position[label] for label in labels])
