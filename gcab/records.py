"""Everything that gcab writes and reads back, as types: a run's log, a model's description, what was measured of both.

`flaws` says where a file that was read is not of its type; what is not named in a type is left alone, so that a later
version may add to it.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import (
    Any,
    Literal,
    NewType,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Count = NewType("Count", int)  # from 1
Natural = NewType("Natural", int)  # from 0
Positive = NewType("Positive", float)  # above 0
WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    Count: "a whole number from 1",
    Natural: "a whole number from 0",
    Positive: "a number above 0",
    bool: "true or false",
    list: "a list",
}

# A run: config.json and the lines of metrics.jsonl.


class Scenario(TypedDict):
    """What is read of the settings `scenario.*`."""

    name: str
    validation: NotRequired[float]


class Training(TypedDict):
    """What is read of the settings `training.*`."""

    epochs: Count


class Settings(TypedDict):
    """What is read of a run's or a model's settings without building anything from them."""

    method: str
    profile: str
    seed: int
    scenario: Scenario
    training: Training
    options: dict[str, Any]


class RunRecord(TypedDict):
    """config.json, written once: what was asked for, and of what."""

    config: Settings
    tasks: list[list[str]]  # the classes of each
    versions: dict[str, str]
    images: NotRequired[dict[str, dict[str, list[float]]]]  # of each split: `ImageSet.looks`
    commit: NotRequired[str | None]
    commit_corrected: NotRequired[str]


class EpochRecord(TypedDict):
    """A line after each epoch."""

    kind: Literal["epoch"]
    task: Count
    epoch: Count
    epochs: Count
    step: NotRequired[int]
    losses: Mapping[str, float | None]
    lr: NotRequired[float]
    seconds: NotRequired[float]


class ProbeRecord(TypedDict):
    """A line before each task but the first: nearest-class-mean accuracy of its images, here and untrained."""

    kind: Literal["probe"]
    task: Count
    before: float
    untrained: float


class Probe(TypedDict):
    """The same within the line of the task."""

    before: float
    untrained: float


class AccuracyRow(TypedDict):
    """One row of the accuracy matrices, in per cent: a value for each task learned by then."""

    tag: list[float]
    taw: list[float]
    task_identification: float


class Drift(TypedDict):
    """How far the features of an earlier task have moved."""

    task: NotRequired[int]
    raw: float | None
    compensated: float | None


class TaskRecord(AccuracyRow):
    """A line after each task."""

    kind: Literal["task"]
    task: Count
    classes: list[Count]
    images: NotRequired[list[int]]
    views: NotRequired[dict[str, AccuracyRow]]  # what parts of the method would reach alone
    capacity: dict[str, float]
    drift: list[Drift]
    probe: NotRequired[Probe | None]
    parameters: int
    bytes: dict[str, int]
    counted: NotRequired[
        dict[str, list[int]]
    ]  # what a method counts as it learns, such as images that entered a memory
    seconds: NotRequired[float]


class FinalRecord(TypedDict):
    """The last line of a run that is complete: every metric (`evaluation.metrics.METRICS`), and these."""

    kind: Literal["final"]
    acc_tag: float
    acc_taw: float
    task_identification: float
    parameters: int
    bytes: dict[str, int]
    seconds: float


LINES: Mapping[str, type] = {"epoch": EpochRecord, "probe": ProbeRecord, "task": TaskRecord, "final": FinalRecord}

# A model: model.json.


class TaughtRecord(TypedDict):
    """How one task was learned; None where it is not known."""

    classes: Natural
    images: NotRequired[Natural | None]
    held_out: NotRequired[Natural | None]
    accuracy: NotRequired[float | None]
    epochs: NotRequired[Natural | None]
    seconds: NotRequired[float | None]
    when: NotRequired[str | None]
    lesson: NotRequired[str | None]
    again: NotRequired[list[str]]
    photos: NotRequired[str | None]
    now: NotRequired[float | None]


class ChangeRecord(TypedDict):
    """`classifier.history.Change`."""

    kind: Literal["distilled", "forgot", "joined", "merged", "renamed"]
    text: str
    when: str
    lessons: Natural
    classes: Count
    distillation: NotRequired[str | None]


class CalibrationRecord(TypedDict):
    """`classifier.calibration.Calibration`."""

    temperature: Positive
    certainty: list[float]
    strength: list[float]
    familiarity: list[float]
    images: Natural
    newest: NotRequired[Natural]  # models of version 0.1.0 have none
    expected_calibration_error: float | None
    alike: NotRequired[bool]
    curve: NotRequired[list[list[float]]]


class PretrainedRecord(TypedDict):
    """`pretrained.description.Description`."""

    kind: str
    origin: str
    licence: str
    digest: str
    resize: Count
    crop: Count
    preprocessing: str
    shape: dict[str, Any]


class FileRecord(TypedDict):
    """What is in every model.json, whatever the model."""

    format: int
    gcab: str
    weights: str  # their SHA-256


class ModelRecord(FileRecord):
    """model.json: what to build, so that weights.safetensors fits it."""

    config: Settings
    tasks: list[list[str]]
    image_size: Count | list[Count]  # of a side, or height and width
    mean: list[float]
    std: list[Positive]
    mirrors: NotRequired[bool]  # as the first task decided; without it, as `augment.flip` of the last one
    eye: NotRequired[int]  # the version of its filters
    pretrained: NotRequired[PretrainedRecord]  # where its encoder is from, if it was trained elsewhere
    labels: NotRequired[list[str | int]]
    taught: NotRequired[list[TaughtRecord]]
    calibration: NotRequired[CalibrationRecord]
    changes: NotRequired[list[ChangeRecord]]


# What was measured of a run's model afterwards: fast.json and runtime-*.json.


class Accuracy(TypedDict):
    """What one evaluation tells."""

    acc_tag: float
    acc_taw: float
    task_identification: float


class Measured(Accuracy):
    """A model tested for a distillation."""

    views: NotRequired[dict[str, Accuracy]]  # what parts reach alone; fast.json had none at first
    parameters: int
    bytes: int


class FastOptions(TypedDict):
    """What is read of a student's options."""

    capacity: float


# fast.json, beside a distilled model: the versions and the hardware are in it, too.
FastRecord = TypedDict(
    "FastRecord",
    {
        "run": NotRequired[str],
        "model": NotRequired[str],
        "teacher": NotRequired[str],  # its method
        "options": FastOptions,
        "images": NotRequired[int],
        "seconds": float,
        "divergence": NotRequired[float],  # it had none at first
        "recorded": NotRequired[Accuracy],  # what the run's log has
        "gcab": Measured,
        "gcab-fast": Measured,
    },
)


class Seconds(TypedDict):
    """Of one image."""

    plain: float
    recorded: NotRequired[float]


class Cost(TypedDict):
    """What one model costs."""

    parameters: int
    macs: int
    encoder_macs: int
    seconds: Seconds


class RuntimeRecord(TypedDict):
    """runtime-*.json, one for each device."""

    models: dict[str, Cost]


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """The types of a record's entries, cached, as they would be evaluated for each line of a log."""
    return get_type_hints(kind)


def flaws(value: Any, kind: Any, place: str = "") -> Iterator[str]:
    """Validates JSON against a type: a sentence for each violation, with its dotted place."""
    origin, inner = get_origin(kind), get_args(kind)
    below = f"{place}." if place else ""
    if kind is Any or (value is None and type(None) in inner):
        return
    if origin in (Union, UnionType):
        if all(any(flaws(value, other)) for other in inner):
            yield from flaws(value, inner[0], place)
    elif origin is Literal:
        if value not in inner:
            yield f"{place} is {shortened(value)}, not {' or '.join(map(shortened, inner))}"
    elif (is_typeddict(kind) or origin in (dict, Mapping)) and isinstance(value, dict):
        fields = types_of(kind) if is_typeddict(kind) else dict.fromkeys(value, inner[1])
        for name, field in fields.items():
            if name in value:
                yield from flaws(value[name], field, f"{below}{name}")
            elif name in kind.__required_keys__:
                yield f"{below}{name} is missing"
    elif origin is list and isinstance(value, list):
        for index, item in enumerate(value):
            yield from flaws(item, inner[0], f"{below}{index}")
    elif not is_plain(value, kind):
        yield f"{place or 'it'} is {shortened(value)}, not {WORDS.get(origin or kind, 'an object')}"


def is_plain(value: Any, kind: Any) -> bool:
    """Whether a value is text, a finite number or a truth of this type."""
    if kind not in WORDS or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind in (Count, Natural):
        return isinstance(value, int) and value >= (1 if kind is Count else 0)
    if kind in (float, Positive):
        finite = isinstance(value, int | float) and math.isfinite(value)
        return finite and (kind is float or value > 0)
    return isinstance(value, kind)


def model_flaws(description: Any) -> Iterator[str]:
    """What is wrong with the content of a model.json, by itself and among its parts."""
    found = list(flaws(description, ModelRecord))
    yield from found
    if found:
        return
    if not re.fullmatch("[0-9a-f]{64}", description["weights"]):
        yield f"weights is {shortened(description['weights'])}, not a SHA-256"
    classes = [len(names) for names in description["tasks"]]
    for name in ("mean", "std"):
        if len(description[name]) != 3:
            yield f"{name} has {len(description[name])} values for 3 channels"
    if not any(classes):
        yield "tasks has no class"
    if "labels" in description:
        labels, names = [*map(str, description["labels"])], [name for task in description["tasks"] for name in task]
        if len(labels) != len(names):
            yield f"labels has {len(labels)} entries for {len(names)} classes"
        elif labels != names:
            place = next(place for place, label in enumerate(labels) if label != names[place])
            yield f"labels.{place} is {shortened(labels[place])}, and {shortened(names[place])} in tasks"
        elif len({*labels}) < len(labels):
            yield "labels has a class twice"
    if "taught" in description and [entry["classes"] for entry in description["taught"]] != classes:
        yield "taught has other numbers of classes than tasks"


def line_flaws(
    record: Mapping[str, Any],
    tasks: Sequence[Sequence[str]],
    learned: Sequence[Mapping[str, Any]],
    metrics: Sequence[str],
) -> Iterator[str]:
    """What is wrong with a line of metrics.jsonl: by itself, and after the lines of the tasks learned by then."""
    kind = str(record["kind"])
    yield from flaws(record, LINES.get(kind, dict[str, Any]))
    last = max((earlier["task"] for earlier in learned), default=0)
    if kind == "task":
        number = record["task"]
        if number > last + 1 and (learned or number < len(tasks)):  # joint training has the last task's line alone
            yield f"task is {number} after task {last}"
        sizes = [len(classes) for classes in tasks[:number]]
        if record["classes"] != sizes:
            yield f"classes is {record['classes']}, with {sizes} in config.json"
        rows = {f"views.{name}.": part for name, part in record.get("views", {}).items()}
        for place, row in {"": record, **rows}.items():
            for name in ("tag", "taw"):
                if len(row[name]) != len(sizes):
                    yield f"{place}{name} has {len(row[name])} values for {len(sizes)} tasks"
        for gate in learned[0]["capacity"] if learned else ():
            if gate not in record["capacity"]:
                yield f"capacity.{gate} is missing"
    elif kind == "final":
        yield from flaws({name: record.get(name) for name in metrics}, dict[str, float | None])
        if last != len(tasks):
            yield f"it follows task {last} of {len(tasks)}"


def shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"
