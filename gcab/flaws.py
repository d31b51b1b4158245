"""Where a file that was read is not of its type (`gcab.records`), in a sentence for each violation."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from gcab.records import LINES, Count, ModelRecord, Natural, Positive

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
