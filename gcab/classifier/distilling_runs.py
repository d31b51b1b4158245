"""From a run's model to GCAB-Fast, tested beside it; resumable after a kill."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, cast

import torch

from gcab.classifier.distillation import METHOD, percent, prepare, student_of
from gcab.classifier.photos import Photos
from gcab.classifier.unfinished import CHECKPOINT_SECONDS, Note, Unfinished, identity_of, place_beside, tidy, workplace
from gcab.config import Overrides
from gcab.data.tasks import OnProgress, Task, ignore
from gcab.errors import GcabError
from gcab.evaluation.metrics import ACCURACIES, results_from_records, summary, summary_of_part
from gcab.methods.method import Method, parameter_count, state_bytes
from gcab.records import Accuracy, FastOptions, FastRecord, Measured
from gcab.runs.assemble import load_method, save_method
from gcab.runs.environment import environment, hardware
from gcab.runs.files import write_json
from gcab.runs.folder import RunFolder
from gcab.runs.model import GENERATION, digest_of, read_description
from gcab.runs.run import Data, data_of, make_evaluator

MEASURED = "fast.json"  # what is written beside the model
LEFT = {MEASURED, "model.json", "weights.safetensors", "lock"}  # all that is left in its folder
SHOWN: dict[Literal["acc_tag", "acc_taw"], str] = {"acc_tag": "ACC_TAG", "acc_taw": "ACC_TAW"}
NOTABLE = 1.0  # points of an accuracy: more than another device's rounding, or bfloat16's, makes of a model


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
