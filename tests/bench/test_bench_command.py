"""`gcab bench --quick` from the command line to its file: every figure is there and they fit together."""

import json
from pathlib import Path
from typing import Any

import pytest

from gcab.bench.cost import count_macs, meta_method
from gcab.bench.tables import tables
from gcab.cli.main import main
from gcab.config import from_dict
from gcab.data.tasks import Task

Figures = dict[str, Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "new folder" / "figures.json"
    assert main(["bench", "--quick", "--device", "cpu", "--json", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def figures(file: Path) -> Figures:
    content: Figures = json.loads(file.read_text())
    return content


@pytest.mark.repeats
def test_the_file_says_where_it_comes_from(file: Path, figures: Figures) -> None:
    assert figures["format"] == 1
    assert set(figures["versions"]) == {"gcab", "torch", "python", "numpy"}
    assert "commit" in figures
    assert figures["device"].startswith("CPU")
    assert figures["command"].startswith("gcab bench --quick")
    assert figures["config"]["profile"] == "extended"
    assert figures["inference_precision"] == "float32"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_every_step_is_timed_twice(figures: Figures) -> None:
    assert [(row["task"], row["way"]) for row in figures["training"]] == [(1, "plain"), (2, "plain"), (3, "plain")]
    batch = figures["config"]["training"]["batch_size"]
    for row in figures["training"]:
        assert row["peak_bytes"] is None
        for at in (0, 1):
            assert row["seconds"][at] > 0
            assert row["start_up_seconds"][at] >= 0
            assert row["images_per_second"][at] == pytest.approx(batch / row["seconds"][at])
            reached = row["flops"] / row["seconds"][at] / row["matmul_flops_per_second"][at]
            assert 0 < row["share_of_matmul_rate"][at] == pytest.approx(reached)
    first, second, third = (row["flops"] for row in figures["training"])
    assert first < second  # teacher and projector come with the second task
    assert third == second  # and the extended profile trains the newest head alone


def test_every_prediction_is_timed_twice(figures: Figures) -> None:
    parts = [("whole", "reference"), ("whole", "fast"), ("passes", "reference"), ("passes", "fast")]
    expected = [(t, b, *way) for t in (1, 3) for b in (1, 8) for way in (*parts, ("encoder", "reference"))]
    found = {(row["tasks"], row["batch"], row["part"], row["way"]): row for row in figures["inference"]}
    assert list(found) == expected
    for (tasks, batch, part, _), row in found.items():
        reference = found[tasks, batch, part, "reference"]
        assert row["peak_bytes"] is None
        assert len(row["seconds"]) == 2
        for at in (0, 1):
            assert row["seconds"][at] > 0
            assert row["speed_up"][at] == pytest.approx(reference["seconds"][at] / row["seconds"][at])
            assert row["images_per_second"][at] == pytest.approx(batch / row["seconds"][at])
    for whole in (row for row in figures["inference"] if row["part"] == "whole" and row["batch"] == 8):
        encoder = found[whole["tasks"], 8, "encoder", "reference"]
        assert min(encoder["seconds"]) < max(whole["seconds"])


@pytest.mark.repeats
def test_operations_are_those_of_the_cost_estimate(figures: Figures) -> None:
    config = from_dict(figures["config"])
    assert [row["tasks"] for row in figures["counts"]] == [1, 3]
    for row in figures["counts"]:
        tasks = tuple(Task(i, 10 * i, tuple("abcdefghij")) for i in range(row["tasks"]))
        encoder, whole = count_macs(meta_method(config, tasks), 32)
        assert (row["macs"]["encoder"], row["macs"]["fast"]) == (encoder, whole)
        assert encoder < whole < row["macs"]["reference"]
        assert row["flops"] == {name: 2 * macs for name, macs in row["macs"].items()}
        assert row["over_encoder"]["fast"] == pytest.approx(whole / encoder)


def test_tables_show_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--quick", "--only", "inference", "--tasks", "3", "--batches", "2,5", "--precision", "bfloat16"]
    assert main(["bench", *asked, "--device", "cpu", "--profile", "official"]) == 0
    printed = capsys.readouterr().out
    assert "set 2 of 2: inference, tasks learned 3, batch 5" in printed
    assert "Inference in bfloat16" in printed
    assert "profile official" in " ".join(printed.split())
    assert "3, 2 " in printed
    assert "multiply-accumulates" in printed
    assert "Training" not in printed


def test_without_a_gpu_recorded_steps_are_said_to_be_missing(figures: Figures) -> None:
    training, inference, counts = tables(figures)
    assert "Recorded steps need a GPU: not available here." in training.note
    assert [row[0] for row in training.rows] == ["1, plain", "2, plain", "3, plain"]
    assert [row[0] for row in inference.rows] == ["1, 1", "1, 8", "3, 1", "3, 8"]
    assert [row[0] for row in counts.rows] == ["1", "3"]
    assert [table.title for table in tables({**figures, "inference": []})] == [training.title, counts.title]


def test_with_a_gpu_tables_show_recorded_steps_start_up_and_memory(figures: Figures) -> None:
    steps = [{**figures["training"][0], "way": "recorded", "seconds": [0.002, 0.003], "start_up_seconds": [40.0, 3.25]}]
    steps[0]["peak_bytes"] = 1_500_000_000
    whole = [row for row in figures["inference"] if (row["part"], row["way"]) == ("whole", "fast")]
    replayed = [{**row, "way": "recorded", "images_per_second": [3000.0, 5000.0]} for row in whole]
    training, inference, _ = tables({**figures, "training": steps, "inference": figures["inference"] + replayed})
    [row] = training.rows
    assert (row[0], row[1], row[4], row[5]) == ("1, recorded", "2.50 ±20%", "40.0, 3.2", "1500")
    assert "not available" not in training.note
    assert "recorded ms" in inference.columns
    assert {row[-1] for row in inference.rows} == {"4000"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--device", "tpu"], "device 'tpu'"),
        (["--device", "nonsense"], "unknown device 'nonsense'"),
        (["--profile", "offical"], "did you mean 'official'?"),
        (["--tasks", "1,0"], "argument --tasks: '1,0' is not whole numbers with commas between"),
        (["--batches", "many"], "argument --batches: 'many' is not whole numbers"),
        (["--only", "nothing"], "argument --only: invalid choice: 'nothing'"),
        (["--json", "."], "argument --json: '.' is a folder: give the name of a file"),
        (["--methods", "er,depp"], "unknown method 'depp': did you mean 'derpp'?"),
        (["--methods", "er,eye"], "--methods names eye, which is not trained task after task: leave it out."),
        (["--methods", "joint"], "--methods names joint, which is not trained task after task"),
        (["--methods", ","], "argument --methods: ',' names no method"),
        (["--methods", "er", "--only", "training"], "--only does not go with --methods"),
        (["--methods", "er", "--tasks", "3"], "--tasks does not go with --methods"),
        (["--methods", "er", "--batches", "3"], "--batches does not go with --methods"),
        (["--methods", "er", "--compile"], "--compile does not go with --methods"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quick", "--device", "cpu", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert captured.err.count("\n") == 1
