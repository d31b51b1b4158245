"""Everything that gcab writes and reads back, as types: a run's log, a model's description, what was measured of both.

`gcab.flaws` says where a file that was read is not of its type; what is not named in a type is left alone, so that a
later version may add to it.
"""

from collections.abc import Mapping
from typing import Any, Literal, NewType, NotRequired, TypedDict

Count = NewType("Count", int)  # from 1
Natural = NewType("Natural", int)  # from 0
Positive = NewType("Positive", float)  # above 0
Percent = NewType("Percent", float)  # from 0 to 100

# A run: config.json and the lines of metrics.jsonl.


class ScenarioSettings(TypedDict):
    """What is read of the settings `scenario.*`."""

    name: str
    validation: NotRequired[float]


class TrainingSettings(TypedDict):
    """What is read of the settings `training.*`."""

    epochs: Count


class Settings(TypedDict):
    """What is read of a run's or a model's settings without building anything from them."""

    method: str
    profile: str
    seed: int
    scenario: ScenarioSettings
    training: TrainingSettings
    options: dict[str, Any]


class GatesSettings(TypedDict):
    """What is read of the settings `options.network.*` of a gcab run."""

    gates: bool


class GcabSettings(TypedDict):
    """What is read of the settings `options.*` of a gcab run."""

    drift: str
    compensation: bool
    lambda_gcab: float
    lambda_pfr: float
    network: GatesSettings


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
    """`classifier.model.Taught`; None where it is not known."""

    classes: Natural
    images: NotRequired[Natural | None]
    held_out: NotRequired[Natural | None]
    accuracy: NotRequired[Percent | None]
    epochs: NotRequired[Natural | None]
    seconds: NotRequired[float | None]
    when: NotRequired[str | None]
    lesson: NotRequired[str | None]
    again: NotRequired[list[str]]
    photos: NotRequired[str | None]
    now: NotRequired[Percent | None]
    at_first: NotRequired[Percent | None]


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
    capacity: NotRequired[dict[str, float]]
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
        "seed": NotRequired[int],
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


class CostRecord(TypedDict):
    """What one model costs."""

    parameters: int
    macs: int
    encoder_macs: int
    seconds: Seconds


class RuntimeRecord(TypedDict):
    """runtime-*.json, one for each device."""

    models: dict[str, CostRecord]


# A figure of the paper and a search.


class FigureRun(TypedDict):
    """A run that a figure is made of."""

    folder: str


class FigureRecord(TypedDict):
    """What is read of a figure's numbers, <name>.json."""

    runs: list[FigureRun]


class TrialRecord(TypedDict):
    """A line of trials.jsonl."""

    search: str
    trial: Count
    settings: dict[str, Any]
    run: str  # its folder, beside the file
    acc_tag: float | None  # on held-out training images; None where its loss became infinite
    acc_taw: float | None
    seconds: float | None
    problem: str
