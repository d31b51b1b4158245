"""Where a file that was read is not of its type (`gcab.records`), in a sentence for each violation."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from gcab.records import LINES, Count, ModelRecord, Natural, Percent, Positive

LARGEST_INT, LARGEST_FLOAT = 2**63, 3.4e38  # of int64 and of float32
WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    Count: "a whole number from 1",
    Natural: "a whole number from 0",
    Positive: "a number above 0",
    Percent: "a number from 0 to 100",
    bool: "true or false",
    list: "a list",
}


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
    """Whether a value is text, a usable number or a truth of this type."""
    if kind not in WORDS or kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is str or kind is list:
        return isinstance(value, kind)
    if kind in (int, Count, Natural):
        least = {Count: 1, Natural: 0}.get(kind, -math.inf)
        return isinstance(value, int) and is_usable(value) and value >= least
    if not isinstance(value, int | float) or not is_usable(value):
        return False
    return kind is float or (0 <= value <= 100 if kind is Percent else value > 0)


def is_usable(value: float) -> bool:
    """Whether torch can calculate with a number: others that JSON can hold end in an OverflowError there."""
    return abs(value) < (LARGEST_INT if isinstance(value, int) else LARGEST_FLOAT)


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
    if "calibration" in description:
        yield from calibration_flaws(description["calibration"])


def calibration_flaws(calibration: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a calibration whose entries are of their types."""
    for name in ("certainty", "strength"):
        if len(calibration[name]) != 2 or calibration[name][1] <= 0:
            yield f"calibration.{name} is {shortened(calibration[name])}, not a number and one above 0"
    if calibration["familiarity"] != sorted(calibration["familiarity"]):
        yield "calibration.familiarity is not ascending"
    if not 0 <= (calibration["expected_calibration_error"] or 0) <= 1:
        yield "calibration.expected_calibration_error is not from 0 to 1"
    if any(len(part) != 3 for part in calibration.get("curve", ())):
        yield "calibration.curve has entries that are not three numbers"


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
