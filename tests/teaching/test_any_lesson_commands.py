"""Every verb for models whose lessons were of one class, or of more photos of classes known before."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import make_photos
from helpers.settings import TINY_GCAB, set_flags

from gcab.classifier.audit import UNKNOWN
from gcab.cli.main import main

pytestmark = [pytest.mark.repeats, pytest.mark.usefixtures("one_patch_size", "plain_translation")]
WEEKS = {"week1": ("circle", "square"), "week2": ("bar",), "week3": ("square",), "week4": ("circle", "cross", "ring")}
LINES = {
    "week2": "the network stays as it is (bar alone gives it nothing to tell apart): the eye and the class statistics",
    "week3": "the network stays as it is (it knows these classes): the eye and the class statistics learn from all",
    "week4": "the network learns cross, ring; more of circle is for the eye and the class statistics",
}


def said(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    for seed, (week, names) in enumerate(WEEKS.items()):
        make_photos(root / week, names, seed=seed)
    return root


@pytest.mark.parametrize("weeks", [["week1", "week2"], ["week1", "week3"], ["week2", "week1", "week4"]])
def test_every_verb(weeks: list[str], world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, (*_, last) = tmp_path / "m.gcab", weeks
    flags = ("--epochs", 2, "--device", "cpu", *set_flags(TINY_GCAB))
    for week in weeks:
        text = " ".join(said(capsys, "learn", model, world / week, *flags).split())
        assert LINES.get(week, "learned circle, square") in text
    names = sorted({name for week in weeks for name in WEEKS[week]})
    again = sorted(set(WEEKS[last]) & {name for week in weeks[:-1] for name in WEEKS[week]})
    info = json.loads(said(capsys, "info", model, "--json"))
    assert sorted(name for task in info["tasks"] for name in task["names"]) == names
    assert info["tasks"][-1]["again"] == again
    assert said(capsys, "info", model)
    assert last in ("week2", "week3") or info["tasks"][-1]["epochs"] == 2
    lessons = json.loads(said(capsys, "history", model, "--json"))
    assert lessons["history"][-1]["again"] == again
    audit = json.loads(said(capsys, "audit", model, "--json"))
    assert (audit["images"], audit["strangers"]) == (0, {})
    assert UNKNOWN not in {tensor["purpose"] for tensor in audit["tensors"]}
    said(capsys, "report", model, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").is_file()
    if last != "week3":  # which leaves the network as a first lesson does
        said(capsys, "export", model, tmp_path / "m.onnx")
        assert (tmp_path / "m.onnx").is_file()
    said(capsys, "undo", model)
    said(capsys, "learn", model, world / last, *flags)
    said(capsys, "forget", model, names[0])
    assert len(json.loads(said(capsys, "info", model, "--json"))["tasks"]) == len(weeks)
    said(capsys, "undo", model)
    quick = ("--set", "options.distillation_steps=3", "--set", "options.views=1", "--device", "cpu")
    said(capsys, "distill", model, world / last, *quick)
    answers = said(capsys, "predict", model, world / "week1", "--json", "--device", "cpu").splitlines()
    right = [json.loads(line)["top"][0]["class"] == Path(json.loads(line)["file"]).parent.name for line in answers]
    assert sum(right) > 0.9 * len(right)
