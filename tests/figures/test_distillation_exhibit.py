"""What tables and figures make of a distillation: heads alone, models measured again, and what the paper has beside."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.recipes import jobs_of, made
from matplotlib.figure import Figure

from gcab.paper import numbers
from gcab.paper.evidence import distillations, read_json
from gcab.paper.exhibits import EXHIBITS
from gcab.paper.publishing import table_of
from gcab.records import FastRecord
from gcab.runs.finding import RUN_LIST
from gcab.runs.folder import RunFolder, find_runs

pytestmark = pytest.mark.usefixtures("small_eyes", "rough_embedding")

RESULTS = Path(__file__).parents[2] / "results"
HEADS = {"GCAB-Fast, Heads alone", "GCAB, Heads alone"}


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two tasks with students of two sizes; not to be changed."""
    (job,) = jobs_of("distillation", tmp_path_factory.mktemp("distilled"), "digits/2")
    return made([replace(job, capacities=(0.4, 0.8))])[0].path


@pytest.fixture
def run(distilled: Path, tmp_path: Path) -> RunFolder:
    return RunFolder.open(Path(shutil.copytree(distilled, tmp_path / "run")))


def rewrite(run: RunFolder, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what every distillation of a run measured."""
    for path in run.path.glob("fast-*/fast.json"):
        figures = json.loads(path.read_text())
        change(figures)
        path.write_text(json.dumps(figures))


def drawn(name: str, runs: list[RunFolder]) -> Figure:
    return EXHIBITS[name].figure(runs, EXHIBITS[name].lines(runs))


def labels(figure: Figure) -> set[str]:
    return {str(label) for axes in figure.axes for label in axes.get_legend_handles_labels()[1]}


@pytest.mark.repeats
def test_heads_alone_are_listed_and_drawn(run: RunFolder) -> None:
    teacher, *students = numbers.distillation([run])
    found = distillations(run)
    assert [line["Capacity, %"] for line in students] == [40.0, 80.0] == [100 * share for share in found]
    for line, figures in zip(students, found.values(), strict=True):
        assert line["Heads alone"] == figures["gcab-fast"]["views"]["heads"]["acc_tag"]
        assert line["KL to GCAB"] == figures["divergence"]
        assert line["Heads alone"] < line["ACC_TAG"] - 20, "the class statistics decide"
    assert teacher["Heads alone"] == found[0.8]["gcab"]["views"]["heads"]["acc_tag"]
    assert {"Heads alone", "KL to GCAB"} < set(table_of("", [teacher, *students]).columns)
    figure = drawn("distillation", [run])
    assert labels(figure) > HEADS
    curves = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in figure.axes[0].get_lines()}
    assert curves["GCAB-Fast, Heads alone"] == [line["Heads alone"] for line in students]
    assert set(curves["GCAB, Heads alone"]) == {teacher["Heads alone"]}
    assert figure.axes[0].get_ylim()[0] < min(line["Heads alone"] for line in students)


def test_files_from_before_heads_were_asked_are_drawn_all_the_same(run: RunFolder) -> None:
    def as_before(figures: dict[str, Any]) -> None:
        for name in ("divergence", "recorded"):
            del figures[name]
        for name in ("gcab", "gcab-fast"):
            del figures[name]["views"]

    whole = numbers.distillation([run])
    rewrite(run, as_before)
    lines = numbers.distillation([run])
    assert [line["ACC_TAG"] for line in lines] == [line["ACC_TAG"] for line in whole]
    assert not {"Heads alone", "KL to GCAB"} & set(table_of("", lines).columns)
    assert not labels(drawn("distillation", [run])) & HEADS


def test_heads_alone_are_a_mean_of_all_seeds_or_missing(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder.open(Path(shutil.copytree(run.path, tmp_path / "other")))
    other.config["seed"] = 2
    (other.path / "fast-40" / "fast.json").unlink()

    def lower(figures: dict[str, Any]) -> None:
        figures["gcab-fast"]["views"]["heads"]["acc_tag"] -= 10

    (alone,) = (line for line in numbers.distillation([run]) if line["Capacity, %"] == 80)
    rewrite(other, lower)
    *_, both = numbers.distillation([run, other])
    assert (both["Seeds"], both["Heads alone"]) == (2, pytest.approx(alone["Heads alone"] - 5))
    rewrite(other, lambda figures: figures["gcab-fast"].pop("views"))
    _, first, both = numbers.distillation([run, other])
    assert both["Heads alone"] is None
    assert first["Heads alone"] is not None, "of one seed"


@pytest.mark.parametrize(("name", "points"), [("acc_tag", 1.1), ("acc_taw", -1.1), ("acc_tag", 0.9)])
def test_a_model_that_is_not_what_its_log_says_is_called_measured_again(
    name: str, points: float, run: RunFolder
) -> None:
    before = {exhibit: EXHIBITS[exhibit].lines([run]) for exhibit in ("main", "memory", "distillation")}

    def other(figures: dict[str, Any]) -> None:
        figures["gcab"][name] += points

    rewrite(run, other)
    title = "GCAB, measured again" if abs(points) > 1 else "GCAB"
    for exhibit, column in (("main", "Method"), ("memory", "Method"), ("distillation", "Run")):
        assert before[exhibit][0][column] == "GCAB"
        line = EXHIBITS[exhibit].lines([run])[0]
        assert line[column] == title
        assert line[name.upper()] == pytest.approx(before[exhibit][0][name.upper()] + points)
    again = {str(line.get_label()): line for line in drawn("main", [run]).axes[0].get_lines()}
    assert "GCAB" in again, "the curve is the log's"
    assert ("GCAB, measured again" in again) == (abs(points) > 1)
    if title in again.keys() - {"GCAB"}:
        assert np.asarray(again[title].get_xydata()).tolist() == [[2, numbers.main([run])[0]["ACC_TAG"]]]
    panel = drawn("distillation", [run]).axes[0]
    assert (panel.get_title() or panel.get_title(loc="left")) == (
        "digits/2, GCAB, measured again" if abs(points) > 1 else "digits/2"
    )


def test_the_papers_point_keeps_its_name_beside_a_model_measured_again(run: RunFolder) -> None:
    run.config["scenario"]["name"] = "cifar100/10"
    rewrite(run, lambda figures: figures["gcab"].update(acc_tag=1.0))
    assert {"GCAB, measured again", "GCAB, the paper", "GCAB-Fast, the paper"} < labels(drawn("memory", [run]))


@pytest.mark.repeats
def test_every_published_distillation_is_read_and_drawn() -> None:
    files = sorted(RESULTS.rglob("fast.json"))
    assert files
    for path in files:
        assert read_json(path, FastRecord)["gcab"]["acc_tag"] > 0
    for file in sorted(RESULTS.glob(f"*/{RUN_LIST}")):
        runs = find_runs([file.parent])
        for name in ("distillation", "main", "memory") if any(map(distillations, runs)) else ():
            assert drawn(name, runs).axes
    runs = find_runs([RESULTS / "cifar100-10-500-epochs"])
    assert [(line["Method"], round(line["ACC_TAG"], 2)) for line in numbers.main(runs)] == [
        ("GCAB, measured again", 49.88),
        ("GCAB-Fast", 49.93),
    ]


def test_the_papers_times_stand_beside_its_own_scenario_only(run: RunFolder) -> None:
    model = {"parameters": 1, "macs": 2, "encoder_macs": 1, "seconds": {"plain": 0.1}}
    timed = {"models": {"GCAB": model}, "tasks": 2, "device": "CPU"}
    (run.path / "runtime-cpu.json").write_text(json.dumps(timed))
    assert [line["Method"] for line in numbers.runtime([run])] == ["GCAB"]
    assert drawn("runtime", [run]).axes
    run.config["scenario"]["name"] = "cifar100/10"
    papers = ["DyTox, the paper", "GCAB, the paper", "GCAB-Fast, the paper"]
    assert [line["Method"] for line in numbers.runtime([run])] == ["GCAB", *papers]
    assert [line["Method"] for line in numbers.runtime([run, run])][-3:] == papers, "once"
    (run.path / "runtime-cpu.json").unlink()
    assert numbers.runtime([run]) == []
