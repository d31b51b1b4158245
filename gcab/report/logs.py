"""What tables and figures read of a run's log, as types: a log that lacks some of it is refused before it is shown."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NewType, NotRequired, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from gcab.errors import GcabError
from gcab.evaluation.metrics import METRICS
from gcab.report.plotting import clip
from gcab.runs.folder import RunFolder, find_runs

Count = NewType("Count", int)  # from 1
WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    Count: "a whole number from 1",
    bool: "true or false",
    list: "a list",
}


class Scenario(TypedDict):
    name: str
    validation: NotRequired[float]


class Training(TypedDict):
    epochs: Count


class Config(TypedDict):
    method: str
    profile: str
    seed: int
    scenario: Scenario
    training: Training
    options: dict[str, Any]


class Document(TypedDict):
    """config.json."""

    config: Config
    tasks: list[list[str]]
    versions: dict[str, str]
    commit: NotRequired[str | None]
    commit_corrected: NotRequired[str]


class Epoch(TypedDict):
    task: Count
    epoch: Count
    epochs: Count
    losses: dict[str, float | None]


class Accuracies(TypedDict):
    """One row of the accuracy matrices."""

    tag: list[float]
    taw: list[float]
    task_identification: float


class Probe(TypedDict):
    before: float
    untrained: float


class Drift(TypedDict):
    raw: float | None
    compensated: float | None


class Task(Accuracies):
    task: Count
    classes: list[Count]
    views: NotRequired[dict[str, Accuracies]]
    capacity: dict[str, float]
    drift: list[Drift]
    probe: NotRequired[Probe | None]
    parameters: int
    bytes: dict[str, int]


class Final(TypedDict):
    acc_tag: float
    acc_taw: float
    task_identification: float
    parameters: int
    bytes: dict[str, int]
    seconds: float


KINDS: Mapping[str, type] = {"epoch": Epoch, "task": Task, "final": Final}


def read_runs(paths: Sequence[Path]) -> list[RunFolder]:
    """Every run that is, lies below, or is listed below one of `paths`, with a log that can be shown."""
    runs = find_runs(paths)
    for run in runs:
        check_log(run)
    return runs


def check_log(run: RunFolder) -> None:
    """Refuse a log with the first thing that is wrong with it, and where."""
    advice = f"restore it, or delete {run.path} and train the run again."
    for flaw in flaws(run.document, Document):
        raise GcabError(f"{run.path / 'config.json'} is damaged ({flaw}): {advice}")
    learned: list[Mapping[str, Any]] = []
    for number, record in enumerate(run.records(), start=1):
        for flaw in record_flaws(record, run.tasks, learned):
            raise GcabError(f"line {number} of {run.metrics} is damaged ({flaw}): {advice}")
        if record["kind"] == "task":
            learned.append(record)


def record_flaws(
    record: Mapping[str, Any], tasks: Sequence[Sequence[str]], learned: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What is wrong with a line of the metrics: by itself, and after the tasks learned by then."""
    kind = str(record["kind"])
    yield from flaws(record, KINDS.get(kind, dict[str, Any]))
    last = max((earlier["task"] for earlier in learned), default=0)
    if kind == "task":
        number = record["task"]
        if number > last + 1 and (learned or number < len(tasks)):  # joint training has the last task's line alone
            yield f"task is {number} after task {last}"
        sizes = [len(classes) for classes in tasks[:number]]
        if record["classes"] != sizes:
            yield f"classes is {record['classes']}, with {sizes} in config.json"
        rows = {f"views.{name}.": view for name, view in record.get("views", {}).items()}
        for place, row in {"": record, **rows}.items():
            for name in ("tag", "taw"):
                if len(row[name]) != len(sizes):
                    yield f"{place}{name} has {len(row[name])} values for {len(sizes)} tasks"
        for gate in learned[0]["capacity"] if learned else ():
            if gate not in record["capacity"]:
                yield f"capacity.{gate} is missing"
    elif kind == "final":
        yield from flaws({name: record.get(name) for name in METRICS}, dict[str, float | None])
        if last != len(tasks):
            yield f"it follows task {last} of {len(tasks)}"


def flaws(value: Any, kind: Any, place: str = "") -> Iterator[str]:
    """Where JSON is not of a type, each with its dotted place."""
    origin, inner = get_origin(kind), get_args(kind)
    below = f"{place}." if place else ""
    if kind is Any or (origin is UnionType and value is None):
        return
    if origin is UnionType:
        yield from flaws(value, inner[0], place)
    elif (is_typeddict(kind) or origin is dict) and isinstance(value, dict):
        fields = get_type_hints(kind) if is_typeddict(kind) else dict.fromkeys(value, inner[1])
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
    """Whether a value is text, a number or a truth of this type."""
    if kind not in WORDS or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is Count:
        return isinstance(value, int) and value > 0
    return isinstance(value, int | float if kind is float else kind)


def shortened(value: Any) -> str:
    return clip(json.dumps(value, ensure_ascii=False), 40)
