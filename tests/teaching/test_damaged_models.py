"""A model.json is checked whole before anything is used: a change in it is harmless, or refused in a sentence."""

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gcab.classifier.audit import audit
from gcab.classifier.calibration import Bin, Calibration
from gcab.classifier.model import Classifier, Taught
from gcab.classifier.overview import overview
from gcab.errors import GcabError
from gcab.runs import assemble

STORED = Path(__file__).parent / "models" / "0.1.0" / "model"
STRANGE: tuple[Any, ...] = (None, True, -1, 0, 10**9, 10**30, 1e308, 1.5, float("nan"), "x", [], {}, [[]])


def leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a JSON value, whole lists and objects included."""
    yield way
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*way, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from leaves(value[index], (*way, index))


def changed(description: Any, way: tuple[Any, ...], new: Any) -> Any:
    if not way:
        return new
    description = copy.deepcopy(description)
    inner = description
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = new
    return description


def described() -> dict[str, Any]:
    """The stored model's description, with what a lesson adds to it."""
    stored: dict[str, Any] = json.loads((STORED / "model.json").read_text())
    taught = [asdict(Taught(len(names), 20, 4, 75.0, 3, 1.5, now=70.0, at_first=75.0)) for names in stored["tasks"]]
    calibration = Calibration(familiarity=(0.5, 1.0), images=20, curve=(Bin(4, 0.9, 0.75),)).to_dict()
    made: dict[str, Any] = json.loads(json.dumps({**stored, "taught": taught, "calibration": calibration}))
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "model"))


def outcome(model: Path) -> str | None:
    """What a reader is told; None if nothing is wrong."""
    try:
        overview(model)
        audit(model)
    except GcabError as problem:
        return str(problem)
    return None


@pytest.mark.repeats
def test_single_changes_are_harmless_or_refused(model: Path) -> None:
    description = described()
    (model / "model.json").write_text(json.dumps(description))
    assert outcome(model) is None
    refused = 0
    for way in leaves(description):
        if len(way) > 1 and way[0] == "config":
            continue  # the next test has these
        for new in STRANGE:
            (model / "model.json").write_text(json.dumps(changed(description, way, new)))
            said = outcome(model)
            refused += said is not None
            if way[:1] in (("mean",), ("std",), ("image_size",), ("tasks",), ("weights",)) and said is None:
                harmless = way[0] in ("mean", "std") and new in (1.5, 10**9, -1, 0) and not isinstance(new, bool)
                names = way[0] == "tasks" and len(way) == 3 and isinstance(new, str)
                assert harmless or names, f"{way} = {new!r} was accepted"
    assert refused > 100


def test_settings_of_another_type_are_refused(model: Path) -> None:
    description = json.loads((STORED / "model.json").read_text())
    for way in leaves(description["config"], ("config",)):
        for new in ("strange", [1], {"a": 1}):
            if isinstance(new, str) and way[-1] in ("name", "profile", "weights"):
                continue  # any text will do
            (model / "model.json").write_text(json.dumps(changed(description, way, new)))
            if isinstance(new, list) and way[-1] == "sizes":
                continue  # a list of numbers is what it is
            assert outcome(model) is not None, f"{way} = {new!r} was accepted"


@pytest.mark.parametrize("name", ["tasks", "weights", "config", "mean", "format"])
def test_something_missing_is_named(model: Path, name: str) -> None:
    description = json.loads((STORED / "model.json").read_text())
    del description[name]
    (model / "model.json").write_text(json.dumps(description))
    with pytest.raises(GcabError, match=f"{name} is missing"):
        Classifier.load(model, "cpu")


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        (lambda names: names[::-1], "labels.0 is .*, and .* in tasks"),
        (lambda names: names[:1] * len(names), "labels.1 is .*, and .* in tasks"),
        (lambda names: names[1:], "labels has . entries for . classes"),
    ],
)
def test_names_that_disagree_are_refused(model: Path, change: Callable[[list[str]], list[str]], flaw: str) -> None:
    description = json.loads((STORED / "model.json").read_text())
    names = [name for task in description["tasks"] for name in task]
    (model / "model.json").write_text(json.dumps({**description, "labels": change(names)}))
    with pytest.raises(GcabError, match=flaw):
        Classifier.load(model, "cpu")


def test_a_class_twice_is_refused(model: Path) -> None:
    description = json.loads((STORED / "model.json").read_text())
    first = description["tasks"][0][0]
    tasks = [[first for _ in names] for names in description["tasks"]]
    again = {**description, "tasks": tasks, "labels": [name for names in tasks for name in names]}
    (model / "model.json").write_text(json.dumps(again))
    with pytest.raises(GcabError, match="labels has a class twice"):
        Classifier.load(model, "cpu")


def test_a_deeply_nested_file_is_refused(model: Path) -> None:
    (model / "model.json").write_text("[" * 200_000)
    with pytest.raises(GcabError, match="damaged"):
        Classifier.load(model, "cpu")


@pytest.mark.parametrize("new", [10**30, 1e308], ids=str)
def test_numbers_too_large_to_calculate_with_are_refused(model: Path, new: float) -> None:
    description = described()
    numbers = [("mean", 1), ("config", "options", "network", "sharpest"), ("config", "options", "heads_within")]
    for way in (*numbers, ("config", "seed"), ("calibration", "temperature"), ("taught", 0, "images")):
        (model / "model.json").write_text(json.dumps(changed(description, way, new)))
        assert str(way[-1]) in (outcome(model) or ""), f"{way} = {new!r} was accepted"


@pytest.mark.parametrize(
    ("name", "new"),
    [("blocks", 10**9), ("width", 10**6 * 12), ("mlp_ratio", 1e9), ("image_size", 10**9), ("image_size", 2**40)],
)
def test_an_encoder_larger_than_its_weights_is_not_built(
    model: Path, monkeypatch: pytest.MonkeyPatch, name: str, new: float
) -> None:
    description = described()
    changes = {("config", "scenario", name): new, (name,): new} if name == "image_size" else {}
    for way, value in (changes or {("config", "encoder", name): new}).items():
        description = changed(description, way, value)
    (model / "model.json").write_text(json.dumps(description))
    monkeypatch.setattr(assemble, "_build", lambda *_: pytest.fail("it was built"))
    with pytest.raises(GcabError, match="does not fit its weights"):
        Classifier.load(model, "cpu")


@pytest.mark.parametrize("name", ["accuracy", "now", "at_first"])
@pytest.mark.parametrize("new", [-1, 101, 10**30])
def test_accuracies_are_percentages(model: Path, name: str, new: float) -> None:
    description = described()
    (model / "model.json").write_text(json.dumps(changed(description, ("taught", 0, name), new)))
    with pytest.raises(GcabError, match=f"taught.0.{name} is {new}, not a number from 0 to 100"):
        overview(model)


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("certainty", [1.0]),
        ("strength", [0.0, 0.0]),
        ("familiarity", [3.0, 1.0]),
        ("expected_calibration_error", 7),
        ("curve", [[1, 0.5]]),
    ],
)
def test_a_damaged_calibration_is_refused_without_the_weights(model: Path, name: str, new: Any) -> None:
    description = described()
    (model / "model.json").write_text(json.dumps(changed(description, ("calibration", name), new)))
    with pytest.raises(GcabError, match=f"calibration.{name} "):
        overview(model)
