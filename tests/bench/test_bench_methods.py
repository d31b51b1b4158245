"""`gcab bench --methods`: the step of a late task, with all that a method has by then, against fine-tuning's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.settings import TINY

from gcab.bench.methods import at_start_of, time_methods
from gcab.bench.tables import tables
from gcab.bench.workload import Workload, make_workload
from gcab.cli.main import main
from gcab.config import override
from gcab.methods.method import Method
from gcab.methods.registry import methods
from gcab.training.feed import Feed
from gcab.training.step import PlainSteps, Step

CPU = torch.device("cpu")
FILES = Path(__file__).parents[2] / "benchmarks"

Figures = dict[str, Any]


def comparing(*names: str) -> Workload:
    return make_workload("extended", CPU, "auto", only=None, quick=True, names=names)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    path = tmp_path_factory.mktemp("bench") / "methods.json"
    assert main(["bench", "--quick", "--device", "cpu", "--methods", "er, pass,er", "--json", str(path)]) == 0
    content: Figures = json.loads(path.read_text())
    return content


def test_every_step_is_timed_twice_beside_fine_tuning(figures: Figures) -> None:
    rows = figures["methods"]
    assert [(row["method"], row["task"]) for row in rows] == [("finetune", 3), ("er", 3), ("pass", 3)]
    assert [row["passes"] for row in rows] == [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]
    for row in rows:
        assert len(row["seconds"]) == 2
        assert min(row["seconds"]) > 0
        assert (row["recorded"], row["not_recorded"]) == (False, [])


def test_nothing_else_is_measured(figures: Figures) -> None:
    assert (figures["training"], figures["inference"], figures["counts"]) == ([], [], [])
    assert figures["config"]["method"] == "finetune"


def test_the_table_says_how_much_longer_a_step_is_and_why_it_is_not_recorded(figures: Figures) -> None:
    first, er, last = figures["methods"]
    shown = [
        {**first, "seconds": [0.002, 0.002], "recorded": True, "peak_bytes": 1_500_000_000},
        {**er, "seconds": [0.003, 0.005], "recorded": True},
        {**last, "seconds": [0.01, 0.01], "not_recorded": ["it has a reason"]},
    ]
    [table] = tables({**figures, "methods": shown})
    assert table.title.startswith("Training step of task 3 (CPU")
    assert table.columns[2] == "over finetune"
    assert [row[:5] for row in table.rows] == [
        ["finetune", "2.00 ±0%", "1.00 x", "1.00", "yes"],
        ["er", "4.00 ±25%", "2.00 x", "2.00", "yes"],
        ["pass", "10.00 ±0%", "5.00 x", "4.00", "no"],
    ]
    assert table.rows[0][6] == "1500"
    assert table.note.endswith("pass: it has a reason.")


@pytest.mark.parametrize("file", ["h200-training", "h200-inference", "h200-inference-compiled", "cpu-inference"])
def test_figures_of_earlier_versions_are_drawn(file: str) -> None:
    stored: Figures = json.loads((FILES / f"{file}.json").read_text())
    assert "methods" not in stored
    assert len(tables(stored)) == 2


def test_all_are_those_that_are_trained_task_after_task() -> None:
    compared = [config.method for config in comparing("all").compared]
    assert compared[0] == "finetune"
    left_out = {"joint", *(name for name, kind in methods().items() if not kind.trains)}
    assert sorted(compared) == sorted(set(methods()) - left_out)


def begun(name: str) -> Method:
    """With a network as small as can be and plain images: what it learns meanwhile is not asked for."""
    work, small = comparing(name), {**TINY, "encoder.patch": 16, "augment.randaugment": False}
    _, method = at_start_of(replace(work, config=override(work.compared[-1], small)), 3)
    return method


@pytest.mark.repeats
@pytest.mark.parametrize("name", ["agem", "derpp", "gss", "hal", "icarl", "lvt", "rm"])
def test_a_memory_is_full_when_its_method_is_timed(name: str) -> None:
    [memory] = begun(name).memories()
    assert memory.filled == memory.places == 200
    assert len(memory.labels.unique()) == 20  # of both earlier tasks


@pytest.mark.repeats
@pytest.mark.parametrize("name", ["ad", "icarl", "lwf", "pass", "sdc"])
def test_a_teacher_is_at_work_when_its_method_is_timed(name: str) -> None:
    assert begun(name).teacher is not None


@pytest.mark.repeats
def test_importances_are_there_when_their_method_is_timed() -> None:
    method = begun("mas")
    assert method.get_buffer("importance").max() > 0


@pytest.mark.repeats
def test_the_way_to_run_steps_is_the_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_steps(step: Step, feed: Feed, explain: Any) -> PlainSteps:
        if step.method.ahead:
            explain("it is told")
        return PlainSteps(step, feed)

    monkeypatch.setattr("gcab.bench.methods.make_steps", make_steps)
    monkeypatch.setattr("gcab.bench.methods.recording_works", lambda device: device.type == "cpu")
    found = {row["method"]: (row["recorded"], row["not_recorded"]) for row in time_methods(comparing("ert"), print)}
    assert found == {"finetune": (False, ["it is told"]), "ert": (True, [])}
