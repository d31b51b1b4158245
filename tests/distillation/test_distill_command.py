"""`gcab distill` for a run and for a model in use, and `ContinualClassifier.distill`."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from helpers.photos import make_photos
from helpers.settings import FEW_FEATURES, TINY, flags, set_flags

from gcab import ContinualClassifier
from gcab.classifier.distillation import percent
from gcab.classifier.model_folder import ModelFolder
from gcab.cli.main import main
from gcab.errors import GcabError
from gcab.evaluation.metrics import accuracy_row, results_from_records, summary
from gcab.methods.gcab import Gcab
from gcab.methods.gcab_fast import GcabFast
from gcab.methods.method import parameter_count
from gcab.methods.one_pass import Imitation
from gcab.runs.run import load_data, make_evaluator

PLAIN = {**TINY, "encoder.width": 20, "training.batch_size": 8}
SMALL = {**PLAIN, **FEW_FEATURES}
QUICK = ("--set", "options.distillation_steps=30", "--set", "options.views=2", "--device", "cpu")
WEEK1, WEEK2, WEEK3 = ("ash", "elm"), ("fir", "oak", "yew"), ("bay", "box")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for seed, names in enumerate((WEEK1, WEEK2, WEEK3), start=1):
        make_photos(root / f"week{seed}", names, 10, seed=seed)
    return root


@pytest.fixture(scope="module")
def taught(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of two generations; not to be changed."""
    model = tmp_path_factory.mktemp("model") / "trees.gcab"
    changes = set_flags(SMALL)
    for week in ("week1", "week2"):
        given = ["learn", str(model), str(photos / week), "--epochs", "3", "--device", "cpu", "--progress", "none"]
        assert main([*given, *changes]) == 0
    return model


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(taught, tmp_path / "trees.gcab"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over three tasks of digits; not to be changed."""
    path = tmp_path_factory.mktemp("run") / "digits"
    given = flags({**SMALL, "training.batch_size": 64})
    assert main(["train", "digits/3", "--run", str(path), "--training.epochs=1", "--device", "cpu", *given]) == 0
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return found


def refused(capsys: pytest.CaptureFixture[str], *given: str | Path) -> str:
    capsys.readouterr()
    assert main(["distill", *map(str, given)]) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.repeats
def test_a_run_is_distilled_beside_its_model(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "model" / "weights.safetensors").read_bytes()
    assert main(["distill", str(run), "--capacity", "0.6", *QUICK]) == 0
    shown = capsys.readouterr().out
    folder = run / "fast-60"
    figures = json.loads((folder / "fast.json").read_text())
    assert (run / "model" / "weights.safetensors").read_bytes() == before
    assert document(folder)["config"]["method"] == "gcab-fast"
    assert document(folder)["tasks"] == document(run / "model")["tasks"]
    assert figures["options"]["capacity"] == 0.6
    assert figures["options"]["distillation_steps"] == 30
    assert figures["command"].startswith("gcab distill ")
    assert figures["gcab-fast"]["bytes"] < figures["gcab"]["bytes"]

    fast = ContinualClassifier.load(folder, "cpu")
    assert isinstance(fast.method, GcabFast)
    assert figures["gcab-fast"]["parameters"] == parameter_count(fast.method)
    data = load_data(fast.config, None)
    record, _, _ = make_evaluator(fast.method, data, torch.device("cpu")).record(data.scenario.tasks, {})
    again = summary(results_from_records([record]))
    assert {name: figures["gcab-fast"][name] for name in ("acc_tag", "acc_taw")} == {
        name: pytest.approx(again[name]) for name in ("acc_tag", "acc_taw")
    }
    for name in ("gcab", "gcab-fast"):
        for measured in (figures[name], figures[name]["views"]["heads"]):
            assert f"{measured['acc_tag']:.2f} %" in shown
            assert f"{measured['acc_taw']:.2f} %" in shown
        assert f"{figures[name]['parameters']:,}" in shown
        assert f"{name}, heads alone" in shown
    assert f"KL of the heads {figures['divergence']:.3g}," in shown


def logged(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last task's record and the final one."""
    *_, task, final = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return task, final


def test_the_teacher_is_measured_as_its_run_measured_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["distill", str(run), "--out", str(run / "here"), *QUICK]) == 0
    task, final = logged(run)
    figures = json.loads((run / "here" / "fast.json").read_text())
    for name, found in figures["recorded"].items():
        assert figures["gcab"][name] == pytest.approx(found)
        assert found == final[name]
    assert figures["gcab"]["views"].keys() == task["views"].keys()
    for name, part in task["views"].items():
        assert figures["gcab"]["views"][name]["acc_taw"] == pytest.approx(np.mean(part["taw"]))
    assert "its log has" not in capsys.readouterr().out


def test_the_student_is_measured_without_the_class_statistics_too(run: Path) -> None:
    assert main(["distill", str(run), *QUICK]) == 0
    figures = json.loads((run / "fast-80" / "fast.json").read_text())
    models = [ContinualClassifier.load(folder, "cpu") for folder in (run, run / "fast-80")]
    data = load_data(models[0].config, None)
    sizes, task = [task.classes for task in data.scenario.tasks], data.scenario.tasks[-1]
    last, test = data.scenario.open(task, data.train).train().images, data.test.images
    with torch.no_grad():

        def of_heads(model: ContinualClassifier, pixels: torch.Tensor) -> torch.Tensor:
            method = cast(Gcab, model.method)
            features = method.features(method.setting.normalise(pixels))
            return method.network.logits(method.network.spaces(features, compensate=True))

        wanted, given = (of_heads(model, last).log_softmax(dim=1) for model in models)
        divergence = (wanted.exp() * (wanted - given)).sum(dim=1).mean()
        tag, _, _ = accuracy_row(of_heads(models[1], test), data.scenario.relabel(data.test.labels), sizes)
    assert figures["divergence"] == pytest.approx(float(divergence), rel=1e-3)
    assert figures["gcab-fast"]["views"]["heads"]["acc_tag"] == pytest.approx(np.average(tag, weights=sizes))
    assert figures["gcab-fast"]["acc_tag"] > figures["gcab-fast"]["views"]["heads"]["acc_tag"] + 20


@pytest.mark.parametrize("points", [-0.9, 0.9, 1.1, -40.0])
@pytest.mark.parametrize("name", ["acc_tag", "acc_taw"])
def test_a_teacher_that_is_not_what_its_log_says_is_told(
    name: str, points: float, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    final = json.loads(lines[-1])
    final[name] += points
    (run / "metrics.jsonl").write_text("\n".join([*lines[:-1], json.dumps(final), ""]))
    assert main(["distill", str(run), *QUICK]) == 0
    said = " ".join(capsys.readouterr().out.split())
    figures = json.loads((run / "fast-80" / "fast.json").read_text())
    assert figures["recorded"][name] == final[name]
    now, then = figures["gcab"], final
    assert (abs(now[name] - then[name]) > 1) == (abs(points) > 1)
    sentence = (
        f"The run's model reaches ACC_TAG {now['acc_tag']:.2f} % and ACC_TAW {now['acc_taw']:.2f} % here, where its "
        f"log has {then['acc_tag']:.2f} % and {then['acc_taw']:.2f} %: these are not the images it was tested on, or "
        "it has changed since; see that --data is the run's own (fast.json keeps both)."
    )
    assert (sentence in said) == (abs(points) > 1)
    assert ("its log has" in said) == (abs(points) > 1)


@pytest.mark.usefixtures("no_work")
def test_a_damaged_log_is_refused_before_any_work(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    final = json.loads(lines[-1])
    del final["acc_taw"]
    (run / "metrics.jsonl").write_text("\n".join([*lines[:-1], json.dumps(final), ""]))
    assert "is damaged (acc_taw is missing)" in refused(capsys, run, *QUICK)


def test_a_student_that_has_lost_its_way_is_not_kept(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused(capsys, run, *QUICK, "--set", "options.distillation_lr=1e30")
    assert sentence.endswith(
        "(KL nan): give a lower learning rate than 1e+30, as with --set options.distillation_lr=1e+29."
    )
    assert not (run / "fast-80").exists()


def test_nor_does_it_come_into_use(model: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the student has lost its way" in refused(
        capsys, model, photos / "week2", *QUICK, "--set", "options.distillation_lr=1e30"
    )
    assert ContinualClassifier.load(model, "cpu").generation == 2


def test_a_run_takes_no_table_of_classes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "leave --labels out" in refused(capsys, run, "--labels", run / "labels.csv", *QUICK)


@pytest.mark.repeats
def test_only_images_of_the_last_task_are_used(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watched(self: GcabFast, images: torch.Tensor, *given: Any) -> None:
        seen.append(len(images))
        original(self, images, *given)

    original = GcabFast.distill
    monkeypatch.setattr(GcabFast, "distill", watched)
    assert main(["distill", str(run), *QUICK]) == 0
    config = ContinualClassifier.load(run, "cpu").config
    data = load_data(config, None)
    labels, last = data.scenario.relabel(data.train.labels), data.scenario.tasks[-1]
    assert seen == [int((labels >= last.first).sum())]


def test_a_model_in_use_gets_a_generation_that_can_be_undone(
    model: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = document(model / "generation-0002")
    assert ModelFolder(model).undoes == "task"
    assert main(["distill", str(model), "--data", str(photos / "week2"), *QUICK]) == 0
    assert ModelFolder(model).undoes == "distillation"
    told = " ".join(capsys.readouterr().out.split())
    assert "generation 3: one pass for 2 tasks, 5 classes, capacity 80 %" in told
    assert re.search(r"of these photos, \d+\.\d % of them right \(\d+\.\d % before\)", told)
    after = document(model / "generation-0003")
    for name in ("tasks", "labels", "taught", "image_size", "mean", "std"):
        assert after[name] == before[name]
    assert after["config"]["method"] == "gcab-fast"
    assert after["calibration"] != before["calibration"]  # of another network, on the same held-out photos
    fast = ContinualClassifier.load(model, "cpu")
    assert fast.generation == 3
    assert fast.calibration.images == before["calibration"]["images"]  # none is counted twice
    assert fast.method.capacity()["input"] == pytest.approx(0.8)
    assert main(["undo", str(model)]) == 0
    assert ContinualClassifier.load(model, "cpu").config.method == "gcab"


def test_loose_photos_of_a_model_have_their_classes_from_a_table_and_bad_ones_are_left_out(
    model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loose").mkdir()
    lines = []
    for name in WEEK2:
        for file in sorted((photos / "week2" / name).iterdir()):
            shutil.copy(file, tmp_path / "loose" / f"{name}-{file.name}")
            lines.append(f"{name}-{file.name},{name}\n")
    (tmp_path / "loose" / "bad.png").write_bytes(b"noise")
    (tmp_path / "labels.csv").write_text("".join([*lines, "bad.png,fir\n"]))
    given = ["distill", str(model), str(tmp_path / "loose"), "--labels", str(tmp_path / "labels.csv"), *QUICK]
    assert main(given) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "left out, as they cannot be read: 1 photo (" in told
    assert "generation 3: one pass for 2 tasks, 5 classes" in told


@pytest.mark.repeats
def test_a_distilled_model_learns_more(model: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["distill", str(model), str(photos / "week2"), *QUICK]) == 0
    lesson = ["learn", str(model), str(photos / "week3"), "--epochs", "3", "--device", "cpu", "--progress", "none"]
    steps: list[int] = []
    imitate = Imitation.run

    def counted(self: Imitation, after_step: Callable[[], object]) -> None:
        steps.append(self.options.distillation_steps)
        imitate(self, after_step)

    monkeypatch.setattr(Imitation, "run", counted)
    assert main([*lesson, "--set", "options.distillation_steps=40"]) == 0
    assert steps[-1] == 40, "how it is distilled may change from lesson to lesson"
    learned = ContinualClassifier.load(model, "cpu")
    assert learned.config.options.distillation_steps == 40
    assert learned.classes == [*WEEK1, *WEEK2, *WEEK3]
    assert isinstance(learned.method, GcabFast)
    assert learned.method.network.classes == [7]
    assert learned.logits(np.zeros((2, 8, 8, 3), dtype=np.uint8)).shape == (2, 7)


def test_a_model_may_be_distilled_to_another_folder(model: Path, photos: Path, tmp_path: Path) -> None:
    assert main(["distill", str(model), str(photos / "week2"), "--out", str(tmp_path / "fast"), *QUICK]) == 0
    assert ContinualClassifier.load(tmp_path / "fast", "cpu").config.method == "gcab-fast"
    assert ContinualClassifier.load(model, "cpu").generation == 2


def test_the_same_distillation_once_more_says_that_it_is_there(
    model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (model, photos / "week2", "--out", tmp_path / "fast", *QUICK)
    assert main(["distill", *map(str, given)]) == 0
    before = contents(tmp_path)
    assert refused(capsys, *given) == (
        f"gcab: {tmp_path / 'fast'} holds a distilled model already: use it, choose another folder (--out), or move "
        "this one away."
    )
    assert contents(tmp_path) == before


def test_photos_must_be_those_learned_last(
    taught: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = refused(capsys, taught, "--data", photos / "week1", *QUICK)
    assert "the classes learned last (fir, oak, yew), but 'ash' is not among them: leave it out" in first
    some = make_photos(tmp_path / "some", WEEK2[:2], 10, seed=2)
    assert "'yew' is missing: add it" in refused(capsys, taught, "--data", some, *QUICK)
    assert "photos are missing" in refused(capsys, taught, *QUICK)
    week2 = photos / "week2"
    assert "named twice" in refused(capsys, taught, week2, "--data", week2)
    assert "there is no folder" in refused(capsys, taught, "--data", tmp_path / "nowhere", *QUICK)
    assert "there is no table" in refused(capsys, taught, week2, "--labels", tmp_path / "none.csv", *QUICK)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever begins to distill has looked too late."""

    def distill(*_: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(GcabFast, "distill", distill)


@pytest.mark.usefixtures("no_work")
def test_nothing_but_a_distilled_run_is_replaced(
    run: Path, model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ContinualClassifier.load(run, "cpu").save(tmp_path / "flat")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("all of it")
    shutil.copytree(tmp_path / "flat", tmp_path / "exported")
    (tmp_path / "exported" / "fast.json").write_text("{}")
    (tmp_path / "exported" / "model.onnx").write_text("somebody's own")
    before = contents(tmp_path)
    for source in ((run,), (model, photos / "week2")):
        for out, sentence in (
            (run / "model", "is a run's own model: choose another folder"),
            (run, "is not empty and holds no model"),
            (model, "keeps generations of a model"),
            (tmp_path / "flat", "holds something else than a distilled run, which would be lost"),
            (tmp_path / "exported", "holds something else than a distilled run, which would be lost"),
            (tmp_path / "notes", "is not empty and holds no model"),
            (tmp_path / "notes" / "todo.txt", "is a file: choose a folder"),
            (tmp_path / "notes" / "todo.txt" / "fast", "todo.txt is a file: choose a folder"),
        ):
            assert sentence in refused(capsys, *source, "--out", out, *QUICK)
    assert contents(tmp_path) == before


@pytest.mark.repeats
def test_a_distilled_run_is_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "empty", run / "fast-80"):
        assert main(["distill", str(run), "--out", str(out), *QUICK]) == 0
    (run / "fast-80" / "fast.json").unlink()  # as if it had been killed before it wrote that
    assert main(["distill", str(run), *QUICK]) == 0
    assert (run / "fast-80" / "fast.json").exists()


@pytest.mark.usefixtures("no_work")
def test_a_distilled_run_that_was_taught_more_is_not_replaced(
    run: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = run / "fast-80"
    ContinualClassifier(epochs=1, device="cpu", settings=SMALL).learn(photos / "week1").save(learned)
    (learned / "fast.json").write_text("{}")
    lesson = ["learn", str(learned), str(photos / "week2"), "--epochs", "1", "--device", "cpu", "--progress", "none"]
    assert main(lesson) == 0
    before = contents(learned)
    assert "fast-80 keeps generations of a model" in refused(capsys, run, *QUICK)
    (learned / "work").mkdir()
    shutil.rmtree(learned / "generation-0001")
    assert "holds something else than a distilled run" in refused(capsys, run, *QUICK)
    shutil.rmtree(learned / "work")
    (learned / "fast.json").unlink()
    assert "holds something else than a distilled run" in refused(capsys, run, *QUICK)
    assert {"model.json", "weights.safetensors"} <= contents(learned).keys() < before.keys()


def test_the_capacity_is_named_as_it_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["distill", str(run), "--capacity", "0.804", *QUICK]) == 0
    assert "capacity 80.4 %," in capsys.readouterr().out
    assert json.loads((run / "fast-80.4" / "fast.json").read_text())["options"]["capacity"] == 0.804
    assert not (run / "fast-80").exists()
    assert [percent(share) for share in (0.8, 0.57, 0.1 + 0.2, 1.0, 0.804)] == ["80", "57", "30", "100", "80.4"]


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("given", ["0", "-0.5", "1.5", "nan", "80%", "text", ""])
def test_a_capacity_that_is_none_is_named_as_it_was_typed(
    given: str, finished: Path, taught: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source in ((finished,), (taught, photos / "week2")):
        assert refused(capsys, *source, f"--capacity={given}") == (
            f"gcab: argument --capacity: '{given}' is not a share: give a number above 0 and up to 1, such as 0.8 "
            "(see 'gcab distill --help')."
        )


@pytest.mark.usefixtures("no_work")
def test_the_capacity_is_no_setting(
    finished: Path, taught: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source in ((finished,), (taught, photos / "week2")):
        sentence = refused(capsys, *source, "--set", "options.capacity=0.5")
        assert sentence.endswith("not as the setting options.capacity: use --capacity.")


@pytest.mark.repeats
def test_one_pass_is_distilled_only_to_another_capacity(
    model: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distill = (model, photos / "week2", *QUICK)
    assert main(["distill", *map(str, distill)]) == 0
    before = contents(model)
    assert "this model is one pass with a capacity of 80 % already" in refused(capsys, *distill)
    assert "of 80 % already" in refused(capsys, *distill, "--out", model.with_name("fast"))
    assert contents(model) == before
    assert main(["distill", *map(str, distill), "--capacity", "0.6"]) == 0
    assert ContinualClassifier.load(model, "cpu").generation == 4
    lesson = ["learn", str(model), str(photos / "week3"), "--epochs", "1", "--device", "cpu", "--progress", "none"]
    assert main(lesson) == 0
    assert "of 60 % already" in refused(capsys, model, photos / "week3", *QUICK, "--capacity", "0.6")


@pytest.mark.repeats
def test_a_run_of_one_pass_is_distilled_only_to_another_capacity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = flags({**SMALL, "training.batch_size": 64, "training.epochs": 1})
    given += ["--options.distillation_steps=5", "--options.views=1", "--device=cpu"]
    assert main(["train", "digits/2", "--method", "gcab-fast", "--run", str(tmp_path / "run"), *given]) == 0
    assert "of 80 % already" in refused(capsys, tmp_path / "run", *QUICK)
    assert main(["distill", str(tmp_path / "run"), "--capacity", "0.6", *QUICK]) == 0
    table = capsys.readouterr().out
    assert "gcab-fast of the run" in table
    assert "gcab  " not in table
    assert json.loads((tmp_path / "run" / "fast-60" / "fast.json").read_text())["teacher"] == "gcab-fast"


def test_a_run_of_one_pass_shows_how_far_each_task_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gcab.terminal.LINE_SECONDS", 0.0)
    given = flags({**SMALL, "training.batch_size": 64, "training.epochs": 1})
    given += ["--options.distillation_steps=5", "--options.views=1", "--device=cpu"]
    assert main(["train", "digits/2", "--method", "gcab-fast", "--run", str(tmp_path / "run"), *given]) == 0
    shown = capsys.readouterr().out
    assert "task 1/2  finishing" not in shown  # one task is one pass
    assert "gcab-fast  task 2/2  finishing: 100 %\n" in shown
    assert "ending" not in (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.usefixtures("no_work")
def test_data_that_is_not_there_is_missed_even_where_none_is_needed(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ((tmp_path / "nowhere",), ("--data", tmp_path / "nowhere")):
        sentence = refused(capsys, finished, *given, *QUICK)
        assert "nowhere': leave it out, the data set digits needs none." in sentence


def test_what_cannot_be_distilled_is_refused(
    finished: Path, taught: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    week2 = photos / "week2"
    assert "there is no model" in refused(capsys, tmp_path / "nothing", "--data", week2)
    assert "belongs to a run" in refused(capsys, finished / "model", "--data", week2)
    assert "options.distillation_steps" in refused(
        capsys, taught, "--data", week2, "--set", "options.distilation_steps=3"
    )
    assert "unknown setting" in refused(capsys, taught, "--data", week2, "--set", "options.network.gates=false")
    plain = ContinualClassifier("finetune", epochs=1, device="cpu", settings=PLAIN).learn(photos / "week1")
    plain.save(tmp_path / "plain")
    sentence = refused(capsys, tmp_path / "plain", "--data", photos / "week1", "--out", tmp_path / "out")
    assert "method finetune has no passes to distill" in sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_work")
def test_a_run_that_has_not_ended_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"final"' not in line and '"task": 3' not in line]
    (run / "metrics.jsonl").write_text("".join(kept))
    assert "has learned 2 of 3 tasks: the command that started it continues it, then" in refused(capsys, run)


@pytest.mark.usefixtures("no_work")
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda place, _: Path(place) != run.resolve())  # root may write everywhere
    assert "no permission to write" in refused(capsys, run)


def test_a_run_of_other_classes_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((run / "config.json").read_text())
    config["tasks"][0][0] = "eleven"
    (run / "config.json").write_text(json.dumps(config))
    assert "other classes than the run" in refused(capsys, run, *QUICK)


def classifier() -> ContinualClassifier:
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    model = ContinualClassifier(epochs=1, device="cpu", settings=SMALL).learn(images, [0, 1] * 12)
    return model.learn(images, [2, 3, 4] * 8)


def test_distilled_from_python() -> None:
    settings = {"options.distillation_steps": 10, "options.views": 1}
    images, model = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8), classifier()
    calibration = model.calibration
    assert model.distill(images, capacity=0.6, settings=settings) is model  # no labels needed
    assert isinstance(model.method, GcabFast)
    assert model.method.capacity()["hidden"] == pytest.approx(0.6)
    assert model.calibration == calibration  # nothing was ever held out
    assert model.classes == [0, 1, 2, 3, 4]
    assert model.predict_proba(images).shape == (24, 5)
    model.distill(images, [2, 3, 4] * 8, settings=settings)
    assert model.method.capacity()["hidden"] == pytest.approx(0.8)


def test_a_distillation_that_fails_changes_nothing() -> None:
    images, model = np.zeros((6, 8, 8, 3), dtype=np.uint8), classifier()
    method = model.method
    with pytest.raises(GcabError, match="6 images but 5 labels"):
        model.distill(images, [2, 3, 4, 2, 3])
    with pytest.raises(GcabError, match=r"learned last \(2, 3, 4\), but '0' is not among them"):
        model.distill(images, [0, 1] * 3)
    assert model.method is method
    with pytest.raises(GcabError, match="learned nothing yet"):
        ContinualClassifier(device="cpu").distill(images)
