"""`gcab figure`: which runs a recipe means, what is run again and what is not, and what is written."""

import json
import platform
import shutil
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.recipes import SHORT, jobs_of, made
from helpers.settings import set_flags
from rich.console import Console

from gcab.cli.figure import whole_numbers
from gcab.cli.main import main
from gcab.config import resolve
from gcab.data import digits
from gcab.errors import GcabError
from gcab.paper import embedding, numbers
from gcab.paper.evidence import read_json, reduced
from gcab.paper.exhibits import EXHIBITS
from gcab.paper.jobs import Job, chosen, compile_key, plan, run_job, steps_left
from gcab.paper.publishing import cell, default_folder, markdown, publish, table_of
from gcab.paper.recipes import RECIPES
from gcab.paper.store import usual_name
from gcab.paper.timing import time_models
from gcab.runs.folder import RunFolder, find_runs
from gcab.runs.run import load_data, train_run

pytestmark = pytest.mark.usefixtures("small_eyes", "rough_embedding")

KINDS = ("json", "md", "png", "svg")
FLAGS = set_flags(SHORT)
ON_DIGITS = ["--scenario", "digits/2", "--epochs", "1", "--device", "cpu", *FLAGS]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """The embedding's two runs on two tasks; not to be changed."""
    return made(jobs_of("embedding", tmp_path_factory.mktemp("pair"), "digits/2"))


@pytest.fixture
def copied(pair: list[RunFolder], tmp_path: Path) -> Path:
    """A folder of runs as --runs has it, with those two."""
    for run in pair:
        shutil.copytree(run.path, tmp_path / "runs" / run.scenario / run.method / run.path.name)
    return tmp_path / "runs"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = main(list(map(str, ["figure", *arguments])))
    output = capsys.readouterr()
    assert code == (2 if output.err else 0)
    return " ".join((output.err or output.out).split())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_list_of_different_runs(name: str, tmp_path: Path) -> None:
    jobs = plan(RECIPES[name], tmp_path)
    assert len({job.path for job in jobs}) == len({job.name for job in jobs}) == len(jobs)
    assert len(jobs) <= len(RECIPES[name].rows) * len(RECIPES[name].scenarios)
    assert {job.config.scenario.name for job in jobs} == set(RECIPES[name].scenarios)
    assert all(job.config.seed == 1 for job in jobs)


@pytest.mark.repeats
def test_rows_of_different_recipes_share_a_run(tmp_path: Path) -> None:
    paths = {name: {job.path for job in plan(RECIPES[name], tmp_path, ["cifar100/10"], epochs=7)} for name in RECIPES}
    assert paths["capacity"] < paths["main"]
    assert paths["embedding"] < paths["ablation"]
    assert paths["capacity"] == paths["runtime"] == paths["distillation"] < paths["memory"]
    assert len(paths["hyperparameters"]) == 10, "the value that the profile has is no run of its own"


def test_the_schedule_is_the_recipes_the_scenarios_or_the_one_asked_for(tmp_path: Path) -> None:
    def epochs(name: str, scenario: str, asked: int | None = None) -> set[int]:
        return {job.config.training.epochs for job in plan(RECIPES[name], tmp_path, [scenario], epochs=asked)}

    assert epochs("main", "cifar100/10") == {120, 500}, "the default's and the paper's"
    assert epochs("ablation", "cifar100/10") == {100}
    assert epochs("ablation", "digits/5") == {40}, "never longer than the scenario's own"
    assert epochs("ablation", "digits/5", 50) == {50}
    assert epochs("memory", "cifar100/10") == {120, 20}, "a row may need less"
    assert epochs("memory", "cifar100/10", 3) == {3}
    with pytest.raises(GcabError, match="epochs is 0"):
        epochs("main", "digits/5", 0)


def test_settings_reach_the_rows_that_know_them_but_no_row_loses_what_it_is(tmp_path: Path) -> None:
    given = {"options.lambda_pfr": "3", "encoder.width": "48", "options.views": "2"}
    for job in plan(RECIPES["ablation"], tmp_path, settings=given):
        assert job.config.encoder.width == 48
        assert getattr(job.config.options, "lambda_pfr", 3.0) == 3.0
        assert job.distillation["options.views"] == 2
        assert "options.capacity" not in job.distillation
    swept = plan(RECIPES["hyperparameters"], tmp_path, settings=given)
    assert {job.config.options.lambda_pfr for job in swept} == {3.0, 0.005, 0.05, 0.5, 5.0, 50.0}
    with pytest.raises(GcabError, match=r"unknown setting 'options.lambda_pfx'.*lambda_pfr"):
        plan(RECIPES["main"], tmp_path, settings={"options.lambda_pfx": "1"})
    with pytest.raises(GcabError, match=r"options\.capacity"):
        plan(RECIPES["main"], tmp_path, settings={"options.capacity": "0.5"})


def test_only_takes_numbers_and_parts_of_names(tmp_path: Path) -> None:
    jobs = plan(RECIPES["ablation"], tmp_path)

    def names(only: str | None) -> list[str]:
        return [job.name.removeprefix("cifar100/10, ") for job in chosen(jobs, only)]

    assert len(names(None)) == 10
    assert names("6, Joint,6") == ["gates alone", "joint"]
    assert names("feature") == ["feature distillation, official", "feature distillation"]
    for wrong in ("0", "11", "nothing", ","):
        with pytest.raises(GcabError, match="--only"):
            chosen(jobs, wrong)


def test_steps_are_counted_with_and_without_the_data(tmp_path: Path, pair: list[RunFolder]) -> None:
    cifar = plan(RECIPES["ablation"], tmp_path, ["cifar100/10"], epochs=2)
    assert steps_left(cifar[0], None) == 2 * 10 * (5000 // 128)
    assert steps_left(cifar[-1], None) == 2 * (50_000 // 128), "joint training has all images at once"
    assert steps_left(plan(RECIPES["main"], tmp_path, ["imagenet100/10"])[0], None) is None
    done = jobs_of("embedding", pair[0].path.parents[3], "digits/2")
    assert steps_left(done[0], None) == 0, "finished"
    elsewhere = jobs_of("embedding", tmp_path, "digits/2")
    labels = digits.load(None, "train", 8).labels
    batches = sum(int(((labels < 5) == first).sum()) // 32 for first in (True, False))
    assert steps_left(elsewhere[0], None) == batches
    assert [job.state() for job in (done[0], elsewhere[0])] == ["finished", "not started"]


def test_what_decides_about_compiled_code_leaves_weights_out(tmp_path: Path) -> None:
    first, *swept = plan(RECIPES["hyperparameters"], tmp_path)
    assert all(compile_key(job.config) == compile_key(first.config) for job in swept)
    ablated = [compile_key(job.config) for job in plan(RECIPES["ablation"], tmp_path)]
    assert all(one != other for one, other in pairwise(ablated))


def test_a_dry_run_lists_and_does_nothing(
    tmp_path: Path, copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = said(capsys, "embedding", "--runs", copied, *ON_DIGITS, "--dry-run")
    assert "1 digits/2, without PFR 1 epoch a task, 0 steps left, finished" in listed
    assert "0 training steps in all" in listed
    listed = said(capsys, "main", "--runs", copied, "--only", "official", "--dry-run")
    assert "1 cifar100/10, extended 120 epochs a task, 0 steps left, not now" in listed
    assert "5 cifar100/5, official 500 epochs a task, 195,000 steps left and 1 distillation, not started" in listed
    assert "390,000 training steps in all" in listed
    listed = said(capsys, "main", "--scenario", "imagenet100/10", "--dry-run")
    assert "? steps" in listed
    assert "3 of 3 runs need --data DIR to be counted" in listed
    assert not (tmp_path / "results").exists()


def test_finished_runs_are_not_run_again_and_a_stopped_one_goes_on(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = find_runs([copied])
    before = {run.path: (run.path / "metrics.jsonl").read_bytes() for run in runs}
    stopped = runs[1].path / "metrics.jsonl"  # killed after its last task, before its final record
    lines = before[runs[1].path].splitlines(keepends=True)
    stopped.write_bytes(b"".join(lines[:-1]))
    out = tmp_path / "out"
    text = said(capsys, "embedding", "--runs", copied, *ON_DIGITS, "--out", out)
    assert text.count("finished before") == 1
    assert (runs[0].path / "metrics.jsonl").read_bytes() == before[runs[0].path]
    again = [json.loads(line) for line in stopped.read_bytes().splitlines()]
    for record, wanted in zip(again, map(json.loads, lines), strict=True):
        assert {**record, "seconds": 0} == {**wanted, "seconds": 0}
    assert "Reduced schedule: 1 epoch a task instead of 40" in text
    assert (out / "embedding.png").exists()


def test_some_rows_now_the_others_later(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    text = said(capsys, "ablation", "--runs", copied, *ON_DIGITS, "--only", "joint", "--out", out)
    assert "1 of 1: digits/2, joint: ACC_TAG" in text
    assert "not done yet: 1, digits/2, fine-tuning: not started" in text
    rows = [line["Row"] for line in json.loads((out / "ablation.json").read_text())["lines"]]
    of_heads = ["gates alone", "PFR without compensation", "compensation"]
    assert rows == [*of_heads, "joint", "gates alone", "compensation"], "then those with statistics"


@pytest.mark.repeats
def test_a_distillation_with_other_settings_is_made_again(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = find_runs([copied])
    with_pfr = next(run for run in runs if run.config["options"]["drift"] == "pfr")
    job = Job("one", jobs_of("embedding", copied, "digits/2")[1].config, with_pfr.path, (0.8, 1.0), {}, timed=False)
    assert job.state() == "2 of 2 distillations to do"
    code = main(["distill", str(with_pfr.path), "--device", "cpu", "--set", "options.distillation_steps=3"])
    assert code == 0
    capsys.readouterr()
    assert job.to_distill(with_pfr) == [1.0]
    same = Job("one", job.config, job.path, (0.8,), {"options.distillation_steps": 3}, timed=False)
    other = Job("one", job.config, job.path, (0.8,), {"options.distillation_steps": 4}, timed=False)
    assert (same.to_distill(with_pfr), same.state()) == ([], "finished")
    assert other.to_distill(with_pfr) == [0.8]


def test_given_runs_alone_are_drawn_and_a_results_folder_can_be_drawn_again(
    pair: list[RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = said(capsys, "ablation", *(run.path for run in pair))
    out = Path("results") / "ablation-digits-2-1-epochs"
    assert f"Folder: {out}" in text
    document = json.loads((out / "ablation.json").read_text())
    assert document["command"].startswith("gcab figure ablation")
    assert [entry["seconds"] for entry in document["runs"]] == [run.final()["seconds"] for run in find_runs([out])]  # type: ignore[index]
    assert {path.name for path in out.iterdir()} == {"runs.json", *(f"ablation.{kind}" for kind in KINDS)}
    picture, page = (out / "ablation.png").read_bytes(), (out / "ablation.md").read_text(encoding="utf-8")
    assert "Reduced schedule: 1 epoch a task instead of 40" in page
    assert "| gates alone | ✓ |" in page
    assert f"From its logs: `gcab figure ablation {out}`." in page
    assert document["command"] not in page, "the folders it names are gone"
    said(capsys, "ablation", out)
    assert (out / "ablation.png").read_bytes() == picture
    assert json.loads((out / "ablation.json").read_text())["lines"] == document["lines"]


def test_a_figure_may_grow_but_is_not_replaced_by_one_of_other_runs(
    pair: list[RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (run.path for run in pair)
    out = Path("results") / "ablation-digits-2-1-epochs"
    assert f"Folder: {out}" in said(capsys, "ablation", one)
    before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
    refused = said(capsys, "ablation", other)
    assert f"{out} has the figure of another run (digits/2/gcab/1-{pair[0].group.rpartition('/')[2]})" in refused
    assert "--out DIR" in refused
    assert {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()} == before
    assert "Folder: elsewhere" in said(capsys, "ablation", other, "--out", "elsewhere")
    assert f"Folder: {out}" in said(capsys, "ablation", one, other), "nothing is lost"
    assert len(json.loads((out / "ablation.json").read_text())["runs"]) == 2


def test_a_given_model_is_timed(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = find_runs([copied])[0]
    said(capsys, "runtime", run.path, "--device", "cpu", "--out", tmp_path / "out")
    assert "Quadro RTX 6000" not in (tmp_path / "out" / "runtime.md").read_text("utf-8"), "the paper has no digits"
    publish("runtime", [changed(run, **{"scenario.name": "cifar100/10"})], tmp_path / "beside", "")
    beside = (tmp_path / "beside" / "runtime.md").read_text("utf-8")
    assert "| GCAB, the paper | 10 | Quadro RTX 6000 | 12.40 |" in beside
    line = json.loads((tmp_path / "out" / "runtime.json").read_text())["lines"][0]
    assert line["Plain, ms"] > 0
    assert line["Parameters, M"] * 1e6 == pytest.approx(run.final()["parameters"])  # type: ignore[index]
    assert line["FLOPs, M"] == 2 * line["MACs, M"]
    assert line["Over the encoder"] > 1
    for other in find_runs([copied]):
        shutil.rmtree(other.model)
    said(capsys, "runtime", copied, "--device", "cpu", "--out", tmp_path / "again")
    again = json.loads((tmp_path / "again" / "runtime.json").read_text())
    assert again["lines"][0] == line, "from its file"
    assert [entry["folder"] for entry in again["runs"]] == [f"runs/{usual_name(run)}"], "no run that was not timed"


def test_bad_input_is_one_sentence(
    copied: Path, tmp_path: Path, pair: list[RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    run = pair[0].path
    for arguments, sentence in {
        ("ablatoin",): "unknown figure 'ablatoin': did you mean 'ablation'?",
        ("main", "--seeds", "1,x"): "--seeds cannot be '1,x'",
        ("main", "--scenario", "cifar/10"): "unknown scenario 'cifar/10'",
        ("main", "--only", "17", "--dry-run"): "--only 17 fits none of the 6 runs",
        ("main", "--device", "cpu", "--runs", str(tmp_path)): "the data set cifar100 needs a folder: give --data DIR.",
        ("main", "--set", "options.views=x", "--dry-run"): "views cannot be 'x': give a whole number.",
        ("ablation", str(run), "--epochs", "3"): "--epochs is for a recipe's own runs",
        ("ablation", str(run), "--dry-run"): "--dry-run is for a recipe's own runs",
        ("ablation", str(run), "--seeds", "1,2"): "--seeds is for a recipe's own runs",
        ("ablation", str(tmp_path / "none")): "there is no run folder",
        ("ablation", str(run), "--out", str(file)): "is a file: give a folder.",
        ("distillation", str(run)): "the figure distillation needs a run that was distilled",
        ("embedding", str(run)): "the figure embedding needs two gcab runs of one seed",
        ("hyperparameters", str(run)): "needs runs that differ in options.lambda_gcab or lambda_pfr alone",
    }.items():
        assert sentence in said(capsys, *arguments)
    unfinished = find_runs([copied])[0].path
    metrics = unfinished / "metrics.jsonl"
    metrics.write_bytes(b"".join(metrics.read_bytes().splitlines(keepends=True)[:-1]))
    assert "none of these runs is finished" in said(capsys, "main", unfinished)
    states = {job.path: job.state() for job in jobs_of("embedding", copied, "digits/2")}
    assert states[unfinished] == "2 of 2 tasks learned"
    with pytest.raises(GcabError, match="file is damaged"):
        read_json(file, dict[str, Any])
    assert whole_numbers("--seeds", "3, 1,3", "1,2") == (3, 1)


def test_seeds_are_averaged(tmp_path: Path) -> None:
    jobs = chosen(jobs_of("ablation", tmp_path, "digits/2", seeds=(1, 2)), "fine-tuning")
    assert [job.name for job in jobs] == ["digits/2, fine-tuning, seed 1", "digits/2, fine-tuning, seed 2"]
    runs = made(jobs)
    one, two = (run.records("final")[0]["acc_tag"] for run in runs)
    (line,) = numbers.main(runs)
    assert EXHIBITS["capacity"].used(runs) == [], "nothing is gated"
    assert (line["Seeds"], line["Method"]) == (2, "Fine-tuning")
    assert line["ACC_TAG"] == pytest.approx((one + two) / 2)
    assert line["ACC_TAG ±"] == pytest.approx(abs(one - two) / 2**0.5)
    table = publish("main", runs, tmp_path / "out", "")
    assert table.note.startswith("Scenario digits/2, epochs 1, number of seeds 2.")
    assert "ACC_TAG ±" in table.columns
    assert "ACC_TAG ±" not in publish("main", runs[:1], tmp_path / "out", "").columns


def test_a_terminal_gets_fewer_columns_than_the_folder(pair: list[RunFolder], tmp_path: Path) -> None:
    shown, text = publish("memory", pair, tmp_path, ""), (tmp_path / "memory.md").read_text()
    assert shown.columns == ["Method", "Total, MB", "ACC_TAG"]
    assert "| Method | Parameters, M | Images, MB | Class statistics, MB | Total, MB | ACC_TAG | ACC_TAW |" in text


def test_gcab_is_judged_beside_its_student(copied: Path) -> None:
    """A stored model may decide otherwise than when its run was logged."""
    run = next(run for run in find_runs([copied]) if run.config["options"]["drift"] == "pfr")
    assert main(["distill", str(run.path), "--device", "cpu", "--set", "options.distillation_steps=3"]) == 0
    path = run.path / "fast-80" / "fast.json"
    figures = json.loads(path.read_text())
    final = run.final()
    assert final is not None
    assert figures["gcab"]["acc_tag"] == pytest.approx(final["acc_tag"])
    figures["gcab"]["acc_tag"] = 12.5
    path.write_text(json.dumps(figures))
    assert [line["ACC_TAG"] for line in numbers.memory([run])] == [12.5, figures["gcab-fast"]["acc_tag"]]
    assert numbers.distillation([run])[0]["ACC_TAG"] == 12.5
    copied_along = {}
    for name in ("capacity", "main"):
        publish(name, [run], copied / name, "")
        copied_along[name] = sorted(path.name for path in (copied / name / "runs").rglob("*") if path.is_file())
    assert copied_along["capacity"] == ["config.json", "metrics.jsonl.gz"], "what its numbers come from"
    assert copied_along["main"] == ["config.json", "fast.json", "metrics.jsonl.gz"]


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", "[1]", "1", '{"options": {"capacity": "a"}}', '{"options": {"capacity": 0.8}, "seconds": 1.0}'],
)
def test_json_of_another_shape_is_damaged(copied: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = find_runs([copied])[0]
    (run.path / "fast-80").mkdir()
    (run.path / "fast-80" / "fast.json").write_text(content)
    assert "fast.json is damaged" in said(capsys, "main", run.path)
    (run.path / "fast-80" / "fast.json").unlink()
    (run.path / "runtime-cpu.json").write_text(content)
    shutil.rmtree(run.model)
    assert "runtime-cpu.json is damaged" in said(capsys, "runtime", run.path)
    (run.path / "runtime-cpu.json").write_text('{"models": {"GCAB": {}}, "tasks": 2, "device": "CPU"}')
    assert "is damaged (models.GCAB.parameters is missing)" in said(capsys, "runtime", run.path)


def test_what_a_run_has_lost_is_named(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = find_runs([copied])
    with_pfr = next(run for run in runs if run.config["options"]["drift"] == "pfr")
    for task in (2, 1):
        lost = with_pfr.path / "predictions" / f"embedding-{task:02d}.npz"
        hidden = lost.rename(tmp_path / "hidden")
        assert f"has lost its embedding after task {task}" in said(capsys, "embedding", *(run.path for run in runs))
        hidden.rename(lost)
    with (runs[0].path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "final"}\n')
    assert "metrics.jsonl is damaged" in said(capsys, "main", runs[0].path)


@pytest.mark.repeats
def test_every_seed_counts_distilled_or_not(copied: Path) -> None:
    one = next(run for run in find_runs([copied]) if run.config["options"]["drift"] == "pfr")
    other = copied / "second-seed"
    shutil.copytree(one.path, other)
    document = json.loads((other / "config.json").read_text())
    document["config"]["seed"] = 2
    (other / "config.json").write_text(json.dumps(document))
    assert main(["distill", str(one.path), "--device", "cpu", "--set", "options.distillation_steps=3"]) == 0
    path = one.path / "fast-80" / "fast.json"
    figures = json.loads(path.read_text())
    figures["gcab"]["acc_tag"] = 10.0
    path.write_text(json.dumps(figures))
    runs = [one, RunFolder.open(other)]
    final = one.final()
    assert final is not None
    without = next(run for run in find_runs([copied]) if run.config["options"]["drift"] == "none")
    assert EXHIBITS["distillation"].used([*runs, without]) == runs
    for line in (numbers.memory(runs)[0], numbers.distillation(runs)[0]):
        assert (line["Seeds"], line["ACC_TAG"]) == (2, pytest.approx((10 + final["acc_tag"]) / 2))


def test_copies_of_a_run_are_one_run(pair: list[RunFolder], tmp_path: Path) -> None:
    shutil.copytree(pair[1].path, tmp_path / "a" / "whole")
    for place in ("a/part", "b/part"):
        (tmp_path / place).mkdir(parents=True)
        for name in ("config.json", "metrics.jsonl"):
            shutil.copy(pair[1].path / name, tmp_path / place / name)
    assert [run.path for run in find_runs([tmp_path])] == [tmp_path / "a" / "whole"]
    with (tmp_path / "b" / "part" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "note"}\n')  # another run of the same seed
    assert len(find_runs([tmp_path])) == 2


def test_a_clock_takes_any_student_and_others_say_when_they_make_one_again(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next(run for run in find_runs([copied]) if run.config["options"]["drift"] == "pfr")
    assert main(["distill", str(run.path), "--device", "cpu", "--set", "options.distillation_steps=3"]) == 0
    job = Job("one", jobs_of("embedding", copied, "digits/2")[1].config, run.path, (0.8,), {}, timed=True)
    wanting = replace(job, distillation={"options.distillation_steps": 2})
    assert wanting.to_distill(run) == []
    assert replace(wanting, timed=False).to_distill(run) == [0.8]
    capsys.readouterr()
    run_job(replace(wanting, timed=False), None, torch.device("cpu"), Console(width=200), "title", "")
    assert "title: fast-80 was made with other settings and is made again" in capsys.readouterr().out
    assert read_json(run.path / "fast-80" / "fast.json", dict[str, Any])["options"]["distillation_steps"] == 2


def test_runs_of_the_fast_method_are_drawn_too(tmp_path: Path) -> None:
    config = resolve("digits/2", "gcab-fast", changes={"training.epochs": 1, **SHORT})
    path = tmp_path / "fast"
    train_run(config, load_data(config, None), path, torch.device("cpu"), lambda _: None)
    runs = [RunFolder.open(path)]
    for name in ("main", "ablation", "memory"):
        publish(name, runs, tmp_path / name, "")
    assert [(line["Row"], line["Class statistics"]) for line in numbers.ablation(runs)] == [
        ("gcab-fast", ""),
        ("gcab-fast", "✓"),
    ]
    time_models(runs[0], torch.device("cpu"))
    assert {line["Method"] for line in numbers.runtime(runs) if "paper" not in line["Method"]} == {"GCAB-Fast"}


def test_series_of_different_schedules_are_different_lines(tmp_path: Path) -> None:
    few = [job for job in jobs_of("hyperparameters", tmp_path, "digits/2") if "lambda_pfr" not in job.name][:2]
    more = [job for job in jobs_of("hyperparameters", tmp_path, "digits/2", epochs=2) if "pfr" not in job.name][:2]
    runs = made([*few, *more])
    lines = numbers.hyperparameters(runs)
    assert [line["Series"] for line in lines] == ["digits/2, 1 epoch"] * 2 + ["digits/2, 2 epochs"] * 2
    top = EXHIBITS["hyperparameters"].figure(runs, lines).axes[0]
    labels = {str(label) for label in top.get_legend_handles_labels()[1]}
    assert {"digits/2, 1 epoch", "digits/2, 2 epochs", "digits/2, 1 epoch, heads alone"} < labels


def changed(run: RunFolder, **settings: Any) -> RunFolder:
    """The same run as if it had been started with other settings, by their dotted places."""
    document = json.loads(json.dumps(run.document))
    for place, value in settings.items():
        *sections, name = place.split(".")
        reduce(lambda section, key: section[key], sections, document["config"])[name] = value
    return RunFolder(run.path, document)


def test_rows_of_the_ablation_that_several_runs_answer_are_told_apart(pair: list[RunFolder]) -> None:
    runs = [pair[0], pair[1], changed(pair[1], **{"options.lambda_pfr": 9.0}), changed(pair[1], seed=2)]
    lines = numbers.ablation(runs)
    assert [(line["Row"], line["Class statistics"], line["Seeds"]) for line in lines] == [
        ("gates alone", "", 1),
        ("PFR without compensation, lambda_pfr=0.5", "", 2),
        ("PFR without compensation, lambda_pfr=9.0", "", 1),
        ("compensation, lambda_pfr=0.5", "", 2),
        ("compensation, lambda_pfr=9.0", "", 1),
        ("gates alone", "✓", 1),
        ("compensation, lambda_pfr=0.5", "✓", 2),
        ("compensation, lambda_pfr=9.0", "✓", 1),
    ]
    axes = EXHIBITS["ablation"].figure(runs, lines).axes[0]
    places = [text.get_position()[1] for text in axes.texts]
    assert len(set(places)) == len(places) == len(lines), "no number lies on another"
    again = [line["Row"] for line in numbers.ablation([pair[0], changed(pair[0])])]
    assert again == ["gates alone", "gates alone, run again"] * 2
    official = [changed(pair[0], profile="official", **{"training.lr": rate}) for rate in (0.1, 0.2)]
    assert {line["Row"] for line in numbers.ablation(official)} == {
        "gates alone, official, lr=0.1",
        "gates alone, official, lr=0.2",
    }


def test_the_embedding_compares_runs_that_differ_in_nothing_else(
    pair: list[RunFolder], copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = [changed(run, **{"training.epochs": 2}) for run in pair]
    assert embedding.pairs([longer[0], *pair]) == {"digits/2": (pair[0], pair[1])}, "not the first, but one that fits"
    with pytest.raises(GcabError, match=r"differ in training.epochs \(1 and 2\): give two runs that differ in options"):
        embedding.pairs([pair[0], longer[1]])
    assert embedding.pairs([pair[0], changed(pair[1], seed=2)]) == {}
    with_pfr = next(run for run in find_runs([copied]) if run.config["options"]["drift"] == "pfr")
    other = changed(with_pfr, **{"encoder.width": 32})
    (with_pfr.path / "config.json").write_text(json.dumps(other.document))
    assert "which differ in encoder.width (16 and 32): give two runs" in said(capsys, "embedding", copied)


def test_the_number_of_seeds_is_told_wherever_lines_differ_in_it(pair: list[RunFolder], tmp_path: Path) -> None:
    runs = [changed(run, **{"scenario.name": "cifar100/10"}) for run in pair]
    shown = publish("memory", [*runs, changed(runs[1], seed=2)], tmp_path, "")
    seeds = shown.columns.index("Seeds")
    assert [row[seeds] for row in shown.rows][:2] == ["1", "2"]


@pytest.mark.parametrize(
    ("place", "value", "flaw"),
    [
        ("options.drift", None, "config.options.drift is null, not text"),
        ("options.compensation", 1, "config.options.compensation is 1, not true or false"),
        ("options.network", {}, "config.options.network.gates is missing"),
        ("options.lambda_pfr", "2", 'config.options.lambda_pfr is "2", not a number'),
        ("scenario.name", "digits", "unknown scenario 'digits'"),
    ],
)
def test_settings_that_rows_are_named_by(
    place: str,
    value: Any,
    flaw: str,
    copied: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in find_runs([copied]):
        (run.path / "config.json").write_text(json.dumps(changed(run, **{place: value}).document))
    for name in ("ablation", "embedding", "hyperparameters"):
        assert flaw in said(capsys, name, copied)
    assert not (tmp_path / "results").exists()


def test_which_row_of_the_ablation_a_run_is() -> None:
    def row(drift: str = "pfr", compensation: bool = True, gates: bool = True, method: str = "gcab") -> str:
        options = {"drift": drift, "compensation": compensation, "network": {"gates": gates}}
        return numbers.component({"method": method, "options": options})

    assert row() == "compensation"
    assert row(compensation=False) == "PFR without compensation"
    assert row("none", compensation=False) == "gates alone"
    assert row("frozen") == "gates on a frozen encoder"
    assert row("distillation") == "feature distillation"
    assert row(gates=False) == "without gates"
    assert [row(method=name) for name in ("finetune", "joint", "er")] == ["fine-tuning", "joint", "er"]


def test_images_count_as_kept_where_they_are_nearest_to_their_own_class() -> None:
    first: dict[str, np.ndarray[Any, Any]] = {
        "labels": np.array([4, 4, 7, 7]),
        "raw": np.array([[0.0, 0.0], [2.0, 0.0], [10.0, 0.0], [12.0, 0.0]]),  # means at 1 and 11
    }
    assert embedding.kept(first["raw"], first) == 100
    assert embedding.kept(np.array([[5.9, 0.0], [6.1, 0.0], [9.0, 1.0], [0.0, 0.0]]), first) == 50


@pytest.mark.repeats
def test_the_embedding_figure_has_the_papers_columns(pair: list[RunFolder]) -> None:
    lines = embedding.records(pair)
    assert [line["After task"] for line in lines] == [1, 2]
    drawn = embedding.figure(pair, lines)
    assert [axes.get_title(loc="left") or axes.get_title() for axes in drawn.axes] == [
        f"{column}: {line[column]:.0f} %"
        for column, line in zip(embedding.COLUMNS, [lines[0], *[lines[1]] * 3], strict=True)
    ]
    assert all(len(axes.collections) == 5 for axes in drawn.axes), "one for each class of task 1"
    assert embedding.pairs(pair[:1]) == {}


def test_the_embedding_is_published_with_its_points_and_its_two_runs_alone(
    pair: list[RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = default_folder("embedding", [*pair, changed(pair[1], seed=2, **{"training.epochs": 7})])
    assert str(out) == "results/embedding-digits-2-1-epochs", "named by what is drawn"
    publish("embedding", [*pair, changed(pair[1], seed=2)], out, "")
    published = {run.log(): len(list(run.path.rglob("*.npz"))) for run in find_runs([out])}
    assert published.keys() == {run.log() for run in pair}
    assert [published[run.log()] for run in pair] == [1, 2], "until task 1 ends, both are the same"
    before = json.loads((out / "embedding.json").read_text())
    assert [entry["folder"] for entry in before["runs"]] == [f"../runs/{usual_name(run)}" for run in pair]
    assert f"Folder: {out}" in said(capsys, "embedding", out)
    assert json.loads((out / "embedding.json").read_text())["lines"] == before["lines"]


def test_of_many_tasks_the_embeddings_shown_are_published(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, {"tasks": [["a", "b"]] * 12})
    published = {pattern.format(last=len(run.tasks)) for pattern in embedding.FILES}
    tasks = {1, *embedding.tasks_of((run, run))}
    assert tasks == {1, 2, 3, 4, 5, 12}
    assert published == {f"predictions/embedding-{task:02d}.npz" for task in tasks}


def test_a_run_tells_what_it_was_computed_on_and_which_commit_was_wrong(pair: list[RunFolder], tmp_path: Path) -> None:
    corrected = {**pair[0].document, "commit": "a" * 40, "commit_corrected": "b" * 40}
    publish("main", [RunFolder(pair[0].path, corrected), pair[1]], tmp_path, "")
    page = (tmp_path / "main.md").read_text("utf-8")
    first, second = json.loads((tmp_path / "main.json").read_text())["runs"]
    assert "| float32 | bbbbbbb (recorded: aaaaaaa) |" in page
    assert (first["commit"], first["commit_corrected"]) == ("a" * 40, "b" * 40)
    assert "commit_corrected" not in second
    assert {key: second[key] for key in ("device", "precision", "platform")} == {
        "device": "CPU, 1 thread",
        "precision": "float32",
        "platform": f"{platform.system()} {platform.machine()}",
    }
    early = {key: value for key, value in pair[0].document.items() if key not in ("device", "precision", "platform")}
    publish("main", [RunFolder(pair[0].path, early)], tmp_path / "early", "")
    assert "Precision" not in (tmp_path / "early" / "main.md").read_text("utf-8")


def test_tables_show_numbers_as_people_read_them() -> None:
    assert [cell(value) for value in (None, 3, 12.346, 0.0005, 0.0, -0.28)] == [
        "–",
        "3",
        "12.35",
        "0.0005",
        "0.00",
        "-0.28",
    ]
    lines = [{"Scenario": "a", "ACC_TAG": 1.0, "Method": "m|n", "Gone": None}, {"Scenario": "a", "ACC_TAG": 2.0}]
    table = table_of("title", lines, "Note.")
    assert table.columns == ["Method", "ACC_TAG"]
    assert markdown(table) == "| Method | ACC_TAG |\n| --- | --- |\n| m/n | 1.00 |\n| – | 2.00 |\n\nScenario a. Note.\n"


def test_a_full_schedule_is_not_called_reduced(pair: list[RunFolder]) -> None:
    full = RunFolder(pair[0].path, json.loads(json.dumps(pair[0].document)))
    full.config["training"]["epochs"] = 40
    assert reduced([full]) == ""
    assert reduced([full, *pair]) == "Reduced schedule of some runs: 1 epoch a task instead of 40"
    assert str(default_folder("main", [full, *pair])) == "results/main-digits-2-1-40-epochs"


def test_the_papers_numbers_stand_beside_ours(pair: list[RunFolder]) -> None:
    runs = [RunFolder(run.path, json.loads(json.dumps(run.document))) for run in pair]
    for run in runs:
        run.config["scenario"]["name"] = "cifar100/10"
    assert [line["Paper ACC_TAW"] for line in numbers.main(runs)] == [82.08, 82.08]
    assert [line["Paper ACC_TAG"] for line in numbers.ablation(runs)] == [31.35, 7.96, 35.90, None, None]
    kept = numbers.memory(runs)
    assert [line["Paper total, MB"] for line in kept[:2]] == [pytest.approx(47.3 * 1.048576)] * 2
    assert {line["Method"]: line["Paper ACC_TAG"] for line in kept[2:]} == {
        "DyTox, 200 images, the paper": 25.94,
        "DyTox, 500 images, the paper": 36.24,
        "LVT, 200 images, the paper": 35.41,
        "LVT, 500 images, the paper": 43.51,
    }
    drawn = {name: EXHIBITS[name].figure(runs, EXHIBITS[name].lines(runs)) for name in ("main", "ablation", "memory")}
    stars = [line for line in drawn["main"].axes[0].get_lines() if line.get_label() == "GCAB, the paper"]
    assert [np.asarray(star.get_xydata()).tolist() for star in stars] == [[[2, 35.9]]]
    diamonds = next(line for line in drawn["ablation"].axes[0].get_lines() if line.get_label() == "the paper")
    assert np.asarray(diamonds.get_xdata()).tolist() == [31.35, 7.96, 35.90]
    points = {str(line.get_label()): line for line in drawn["memory"].axes[0].get_lines()}
    assert {"GCAB, the paper", "LVT, 500 images, the paper"} < points.keys()
    right = max(float(np.max(line.get_xdata())) for line in points.values())
    assert drawn["memory"].axes[0].get_xlim()[1] > right, "no marker is cut in two"
    runs[1].config["training"]["epochs"] = 2
    rows = [line["Row"] for line in numbers.ablation(runs)]
    assert rows[:3] == ["gates alone, 1 epoch", "PFR without compensation, 2 epochs", "compensation, 2 epochs"]


def test_a_run_answers_for_its_parts(pair: list[RunFolder]) -> None:
    """Heads alone, with and without the cascade, as the run recorded them."""
    rows = {(line["Row"], bool(line["Class statistics"])): line for line in numbers.ablation(pair)}
    last = pair[1].records("task")[-1]
    for part, row in (("heads", "compensation"), ("heads, not compensated", "PFR without compensation")):
        assert rows[row, False]["ACC_TAW"] == pytest.approx(np.mean(last["views"][part]["taw"]))
    final = pair[1].final()
    assert final is not None
    assert rows["compensation", True]["ACC_TAG"] == final["acc_tag"]
    marks = {row: [line[mark] for mark in ("Gates", "PFR", "Compensation")] for (row, _), line in rows.items()}
    assert marks["PFR without compensation"] == ["✓", "✓", ""]
    assert marks["gates alone"] == ["✓", "", ""]
