"""The folders of results/: each names the runs that its figure is made of, and its page says so; a run is kept once."""

import hashlib
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from gcab.paper.exhibits import EXHIBITS
from gcab.paper.origin import origin
from gcab.paper.publishing import drawn, markdown, runs_table, table_of
from gcab.paper.recipes import RECIPES
from gcab.paper.store import store_of
from gcab.report.logs import read_runs
from gcab.runs.finding import RUN_LIST, listed_runs
from gcab.runs.folder import find_runs

pytestmark = pytest.mark.repeats

RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(path for path in RESULTS.rglob("*") if path.is_file())
LARGEST = 10_000_000  # bytes of all files together
SMALL = 1_000
FIGURES = sorted(file for file in RESULTS.glob("*/*.json") if file.stem in RECIPES)


def test_every_figure_has_a_page() -> None:
    assert {file.stem for file in FIGURES} >= {"main", "ablation", "embedding", "runtime"}
    assert {file.with_suffix(".md") for file in FIGURES} | {RESULTS / "README.md"} == set(RESULTS.rglob("*.md"))


@pytest.mark.parametrize("file", FIGURES, ids=lambda file: file.parent.name)
def test_a_figure_can_be_drawn_again_from_the_runs_that_its_folder_names(file: Path) -> None:
    """By the command of its page, with its own numbers, from the runs that it lists."""
    name, folder, published = file.stem, file.parent, json.loads(file.read_text())
    there = read_runs([folder])
    runs = drawn(name, there)
    assert {run.path for run in runs} == {run.path for run in there}, "no run without a part in it"
    places = [folder / entry["folder"] for entry in published["runs"]]
    assert places == [run.path for run in runs]
    lines = EXHIBITS[name].lines(runs)
    for line, wanted in zip(lines, published["lines"], strict=True):
        assert line == pytest.approx(wanted)
    names = [str(place.resolve().relative_to(store_of(folder))) for place in places]
    page = file.with_suffix(".md").read_text("utf-8")
    assert origin(name, runs, names, Path("results") / folder.name) in page
    for table in (table_of("", lines, EXHIBITS[name].note), runs_table(runs, names, published["runs"])):
        assert markdown(table) in page


def test_every_run_is_kept_once() -> None:
    """In a store that has no run without a part in some folder, and in which nothing is large."""
    copies = defaultdict(list)
    for path in FILES:
        copies[hashlib.sha256(path.read_bytes()).digest()].append(path)
    assert [paths for paths in copies.values() if len(paths) > 1 and paths[0].stat().st_size > SMALL] == []
    assert sum(path.stat().st_size for path in FILES) < LARGEST
    assert [path for path in FILES if path.name == "metrics.jsonl"] == [], "logs are compressed"
    kept = find_runs([RESULTS / "runs"])
    assert {run.log() for run in kept} == {run.log() for run in find_runs([RESULTS])}
    named = {run.resolve() for file in RESULTS.glob(f"*/{RUN_LIST}") for run in listed_runs(file.parent)}
    assert named == {run.path.resolve() for run in kept}
    assert len({run.log() for run in kept}) == len(kept)


def test_commits_that_are_wrong_are_corrected_in_runs_and_on_pages() -> None:
    listed = re.findall(r"^\| (\w{7}) \| (.+?) \|", (RESULTS / "README.md").read_text("utf-8"), re.MULTILINE)
    wrong = dict(listed)
    assert wrong.keys() == {"9df25c5", "bc1b10e", "6e74584", "fcc1df5", "b29d8ea"}
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
