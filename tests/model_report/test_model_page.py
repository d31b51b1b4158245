"""A model measured on labelled photos, and the page about it: numbers that are right, names that do no harm."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.commands import refusal, succeeds
from helpers.models import lessons
from helpers.photos import make_photos

from gcab import ContinualClassifier, ModelFolder
from gcab.classifier.calibration import expected_calibration_error, reliability
from gcab.classifier.facts import facts_of
from gcab.classifier.testing import auroc, measure
from gcab.classifier.unsure import least_sure
from gcab.report.model_page import estimate_now, warnings_of, write_model_page

HARM = "<script>x"
TASKS = (("ash", "elm"), (HARM, "oak"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two lessons, and photos to test it with: some of a class that it does not know."""
    root = tmp_path_factory.mktemp("world")
    *_, model = lessons(TASKS, epochs=3)
    ModelFolder(root / "trees.gcab").write(model.save)
    make_photos(root / "photos", ["ash", "elm", HARM, "strange"], count=5, seed=7)
    (root / "photos" / "ash" / "broken.png").write_bytes(b"noise")
    return root


@pytest.fixture(scope="module")
def measured(world: Path) -> dict[str, Any]:
    model = ContinualClassifier.load(world / "trees.gcab", "cpu")
    files = sorted((world / "photos").rglob("*.png"))
    return measure(model, files, [file.parent.name for file in files])


@pytest.mark.repeats
def test_the_numbers_are_those_of_the_predictions(world: Path, measured: dict[str, Any]) -> None:
    model = ContinualClassifier.load(world / "trees.gcab", "cpu")
    names = ["ash", "elm", HARM]
    files = [file for name in names for file in sorted((world / "photos" / name).glob("0*.png"))]
    labels = [file.parent.name for file in files]
    right = model.predict(files) == np.array(labels)
    assert measured["photos"] == len(files) == 15
    assert measured["accuracy"] == pytest.approx(100 * right.mean(), abs=0.01)
    assert measured["confidence"] == pytest.approx(100 * model.predict_proba(files).max(axis=1).mean(), abs=0.01)
    assert measured["lessons"][0] == pytest.approx(100 * right[:10].mean(), abs=0.01)
    assert [sum(row) for row in measured["confusion"]] == [5, 5, 5, 0]
    by_name = {entry["name"]: entry for entry in measured["classes"]}
    assert by_name["elm"]["accuracy"] == pytest.approx(100 * right[5:10].mean(), abs=0.01)
    assert by_name["oak"]["accuracy"] is None
    assert sum(part["images"] for part in measured["curve"]) == 15
    assert set(measured["parts"]) >= {"heads", "statistics", "eye"}
    assert (measured["strange"], len(measured["skipped"])) == ({"strange": 5}, 1)
    assert measured["unknown"]["photos"] == 5


@pytest.mark.repeats
def test_the_page_says_it_all_and_runs_nothing(world: Path, measured: dict[str, Any], tmp_path: Path) -> None:
    page = write_model_page(facts_of(world / "trees.gcab"), measured, tmp_path / "deep" / "test.html").read_text(
        "utf-8"
    )
    assert f'<div class="number">{measured["accuracy"]:.1f}</div>' in page
    assert "5 photos of classes it does not know" in page
    assert "&lt;script&gt;x" in page
    assert "<script" not in page
    assert "http" not in re.sub(r"data:image/svg\+xml;base64,[\w+/=]+", "", page)
    for section in ("lessons", "confusion", "calibration"):
        assert f'<section id="{section}">' in page
    assert "now, these photos" not in page  # that is within the figure
    assert "these photos" in page
    assert "these photos" not in write_model_page(facts_of(world / "trees.gcab"), None, tmp_path / "r.html").read_text()


@pytest.mark.repeats
def test_a_lesson_of_more_photos_is_told_by_their_classes(world: Path, tmp_path: Path) -> None:
    facts = facts_of(world / "trees.gcab")
    facts["tasks"][0]["names"] += facts["tasks"][1]["names"]
    for lesson in (facts["tasks"][1], facts["history"][1]):
        lesson.update(names=[], again=["ash", HARM])
    page = write_model_page(facts, None, tmp_path / "more.html").read_text("utf-8")
    assert "2: more of ash, &lt;script&gt;x" in page
    assert "lesson 2: more of ash, &lt;script&gt;x" in page


def test_what_nobody_should_overlook(world: Path, measured: dict[str, Any]) -> None:
    facts = facts_of(world / "trees.gcab")
    fallen = {**facts["tasks"][0], "accuracy": 90.0, "at_first": None, "now": 40.0}
    doubtful = {**facts, "tasks": [fallen, *facts["tasks"][1:]], "calibration": {**facts["calibration"], "images": 0}}
    told = warnings_of(doubtful, {**measured, "confidence": 82.0, "accuracy": 54.0})
    assert [sentence.split()[0] for sentence in told] == ["Lesson", "The", "The"]
    assert "had 90 % when it was learned, and about 40 % now" in told[0]
    assert "82 % sure on average and right 54 %" in told[1]
    poor = [
        {**task, "accuracy": accuracy, "at_first": accuracy, "now": now}
        for task, accuracy, now in zip(facts["tasks"], (17.0, 10.0), (20.0, 10.0), strict=True)
    ]
    told = warnings_of({**facts, "tasks": poor}, None)
    assert [sentence[:24] for sentence in told] == ["Lesson 1 ended with 17 %", "Lesson 2 ended with 10 %"]
    assert warnings_of({**facts, "tasks": [{**poor[0], "now": 60.0}]}, None) == [], "later photos have helped"
    small = {**fallen, "at_first": 45.0}  # most of its classes had no held-out photo
    assert not any(
        "Lesson 1" in sentence for sentence in warnings_of({**facts, "tasks": [small, *facts["tasks"][1:]]}, None)
    )
    assert estimate_now(doubtful) == pytest.approx((2 * 40.0 + 2 * facts["tasks"][1]["now"]) / 4)
    assert estimate_now({"tasks": [{**fallen, "now": None}, *facts["tasks"][1:]]}) is None


def test_the_commands_write_pages(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, photos = world / "trees.gcab", world / "photos"
    said = succeeds(capsys, "test", model, photos, "--device", "cpu")
    assert re.search(r"[\d.]+ % of 15 photos right; [\d.]+ % sure on average, calibration error", said)
    assert re.search(r"photos of unknown classes: 5, told from known ones with AUROC \d\.\d\d", said)
    assert re.search(r"left out, as they cannot be read: 1 photo \(\S*broken.png is not an image .* as PNG\)", said)
    assert said.endswith("trees-test.html\n")
    assert succeeds(capsys, "report", model) == "trees-report.html\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["trees-report.html", "trees-test.html"]
    found = json.loads(succeeds(capsys, "test", model, photos, "--json", "--out", tmp_path / "x.html"))
    assert (found["photos"], found["page"]) == (15, str(tmp_path / "x.html"))
    assert "is a model: a page is about one model, or about runs" in refusal(capsys, "report", model, photos)
    assert "there is no folder" in refusal(capsys, "test", model, tmp_path / "none")
    other = make_photos(tmp_path / "other", ["yew"], count=1)
    assert "that the model knows (ash, elm, <script>x, oak): check" in refusal(capsys, "test", model, other)


def test_the_curve_and_its_error_by_hand() -> None:
    probabilities = torch.tensor([[0.9, 0.1]] * 10 + [[0.4, 0.6]] * 10)
    labels = torch.tensor([0] * 8 + [1] * 2 + [1] * 3 + [0] * 7)
    low, high = reliability(probabilities, labels)
    assert (low.images, high.images) == (10, 10)
    assert (low.accuracy, high.accuracy) == pytest.approx((0.3, 0.8))
    assert expected_calibration_error(probabilities, labels) == pytest.approx((0.3 + 0.1) / 2)


def test_auroc_counts_pairs() -> None:
    higher, lower = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 2.5, 1.0])
    pairs = [(above > below) + 0.5 * (above == below) for above in higher.tolist() for below in lower.tolist()]
    assert auroc(higher, lower) == pytest.approx(sum(pairs) / len(pairs))


def test_the_least_sure_come_first_and_the_sure_not_at_all(world: Path) -> None:
    model = ContinualClassifier.load(world / "trees.gcab", "cpu")
    logits = 5 * model.calibration.temperature * torch.eye(4)
    labels = torch.tensor([0, 2, 2, 1])
    found = least_sure(model, ["a", "b", "c", "d"], logits, labels)
    assert [(photo.file, photo.label, photo.guess) for photo in found] == [("b", HARM, "elm"), ("d", "elm", "oak")]
