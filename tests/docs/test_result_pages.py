"""The folders of results/: each has what its figure is made of, and its page says so."""

import json
import re
from pathlib import Path

import pytest

from gcab.paper.origin import origin, published_folder
from gcab.paper.publishing import EXHIBITS, drawn
from gcab.paper.recipes import RECIPES
from gcab.report.logs import read_runs

RESULTS = Path(__file__).parents[2] / "results"
FIGURES = sorted(file for file in RESULTS.glob("*/*.json") if file.stem in RECIPES)


def test_every_figure_has_a_page() -> None:
    assert {file.stem for file in FIGURES} >= {"main", "ablation", "embedding", "runtime"}
    assert {file.with_suffix(".md") for file in FIGURES} | {RESULTS / "README.md"} == set(RESULTS.rglob("*.md"))


@pytest.mark.parametrize("file", FIGURES, ids=lambda file: file.parent.name)
def test_a_figure_can_be_drawn_again_from_its_own_folder(file: Path) -> None:
    """By the command of its page, with its own numbers, from the runs that it lists."""
    name, folder, published = file.stem, file.parent, json.loads(file.read_text())
    there = read_runs([folder])
    runs = drawn(name, there)
    assert {run.path for run in runs} == {run.path for run in there}, "no run without a part in it"
    assert [entry["folder"] for entry in published["runs"]] == [str(published_folder(run)) for run in runs]
    for line, wanted in zip(EXHIBITS[name].lines(runs), published["lines"], strict=True):
        assert line == pytest.approx(wanted)
    assert origin(name, runs, Path("results") / folder.name) in file.with_suffix(".md").read_text("utf-8")


def test_commits_that_are_wrong_are_corrected_in_runs_and_on_pages() -> None:
    listed = re.findall(r"^\| (\w{7}) \| (.+?) \|", (RESULTS / "README.md").read_text("utf-8"), re.MULTILINE)
    wrong = dict(listed)
    assert wrong.keys() == {"9df25c5", "bc1b10e"}
    for file in RESULTS.rglob("config.json"):
        document = json.loads(file.read_text())
        recorded, corrected = (document.get("commit") or "")[:7], document.get("commit_corrected", "")[:7]
        assert bool(corrected) == (recorded in wrong or not recorded), file
        assert not recorded or not corrected or corrected in wrong[recorded], file
    for file in FIGURES:
        page = file.with_suffix(".md").read_text("utf-8")
        assert re.findall(rf"(?<!recorded: )\b(?:{'|'.join(wrong)})", page) == []
        assert set(re.findall(r"(\w{7}) \(recorded: (\w{7})\)", page)) == {
            (entry["commit_corrected"][:7], entry["commit"][:7])
            for entry in json.loads(file.read_text())["runs"]
            if "commit_corrected" in entry
        }
