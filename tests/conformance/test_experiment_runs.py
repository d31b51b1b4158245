"""A run as a whole: what it leaves behind, and what it does when it is started again, twice, or after damage."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.runs import CPU, Case, FinishedRun, data_for, finished_run, ignore, same_results, weights
from torch import Tensor

from gcab.config import RunConfig, config_hash
from gcab.data.tasks import Batch, Progress
from gcab.errors import GcabError
from gcab.methods.finetune import Finetune
from gcab.runs.checkpoint import CheckpointStore
from gcab.runs.folder import RunFolder
from gcab.runs.lock import RunLock
from gcab.runs.run import run_path, train_run

pytestmark = pytest.mark.repeats


class StoppedError(Exception):
    """The run was stopped from outside."""


@pytest.fixture(scope="module")
def gcab(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    config = Case("gcab", "extended").config(changes={"scenario.validation": 0.25})
    return finished_run(config, tmp_path_factory.mktemp("gcab") / "run")


@pytest.fixture(scope="module")
def finetune(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return finished_run(Case("finetune", "official").config(), tmp_path_factory.mktemp("finetune") / "run")


def stopped(config: RunConfig, path: Path, kind: str, task: int, epoch: int | None = None) -> None:
    """A run with a checkpoint after every epoch, stopped when a record is written and before it is saved."""

    def observe(record: dict[str, Any]) -> None:
        if (record["kind"], record.get("task"), record.get("epoch")) == (kind, task, epoch):
            raise StoppedError

    with pytest.raises(StoppedError):
        train_run(config, data_for(config), path, CPU, observe, checkpoint_seconds=0)


def resumed(config: RunConfig, path: Path) -> tuple[RunFolder, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []
    train_run(config, data_for(config), path, CPU, seen.append, checkpoint_seconds=0)
    return RunFolder.open(path), seen


def test_the_final_record_is_the_last_line(gcab: FinishedRun) -> None:
    lines = (gcab.run.path / "metrics.jsonl").read_text().splitlines()
    final = json.loads(lines[-1])
    assert final["kind"] == "final"
    last = gcab.run.records("task")[-1]
    assert final["acc_tag"] == pytest.approx(np.mean(last["tag"]))  # tasks of one size
    assert final["acc_taw"] == pytest.approx(np.mean(last["taw"]))
    assert final["bytes"] == last["bytes"]
    assert final["task_identification"] == last["task_identification"]
    assert [json.loads(line)["kind"] for line in lines].count("final") == 1


def test_the_records_of_a_task(gcab: FinishedRun, finetune: FinishedRun) -> None:
    records = gcab.run.records("task")
    assert [record["task"] for record in records] == [1, 2, 3]
    for record in records:
        number = record["task"]
        assert len(record["tag"]) == len(record["taw"]) == len(record["classes"]) == len(record["images"]) == number
        assert all(agnostic <= aware for agnostic, aware in zip(record["tag"], record["taw"], strict=True))
        assert [drift["task"] for drift in record["drift"]] == list(range(1, number))
        assert all(drift["raw"] is not None and drift["raw"] > 0 for drift in record["drift"])
        assert all(drift["compensated"] is not None and drift["compensated"] >= 0 for drift in record["drift"])
        assert (record["probe"] is None) == (number == 1)
        assert record["bytes"]["images"] == 0 < record["bytes"]["prototypes"]
        assert set(record["capacity"]) == {"input", "hidden"}
    plain = finetune.run.records("task")[-1]
    assert plain["capacity"] == {}
    assert all(drift["compensated"] is None for drift in plain["drift"])


def test_the_epochs_are_numbered(gcab: FinishedRun) -> None:
    epochs = gcab.run.records("epoch")
    assert [(record["task"], record["epoch"], record["epochs"], record["step"]) for record in epochs] == [
        (task, epoch, 2, epoch) for task in (1, 2, 3) for epoch in (1, 2)
    ]  # 24 images less the 6 held out: one batch of 12
    assert all(record["lr"] > 0 and record["seconds"] > 0 for record in epochs)


def test_the_predictions_say_what_the_record_says(gcab: FinishedRun) -> None:
    for record in gcab.run.records("task"):
        arrays = gcab.run.load_arrays(f"task-{record['task']:02d}")
        assert arrays is not None
        hits = arrays["logits"].argmax(axis=1) == arrays["labels"]
        for task, accuracy in zip(gcab.tasks, record["tag"], strict=False):
            mine = (arrays["labels"] >= task.first) & (arrays["labels"] < task.first + task.classes)
            assert 100 * hits[mine].mean() == pytest.approx(accuracy)


def test_embeddings_of_the_first_task_follow_it_through_the_run(gcab: FinishedRun) -> None:
    embedded = [gcab.run.embedding(number) for number in (1, 2, 3)]
    for number, found in enumerate(embedded, start=1):
        assert found is not None
        assert found["raw"].shape == found["compensated"].shape == (8, 16)
        assert np.array_equal(found["raw"], found["compensated"]) == (number == 1)


def test_joint_training_has_one_record_over_all_tasks(tmp_path: Path) -> None:
    run = finished_run(Case("joint", "official").config(), tmp_path / "run").run
    [record] = run.records("task")
    assert record["task"] == 3
    assert len(record["tag"]) == len(record["taw"]) == 3
    assert (record["drift"], record["probe"]) == ([], None)
    assert {epoch["task"] for epoch in run.records("epoch")} == {1}
    final = run.final()
    assert final is not None
    assert final["acc_tag"] == pytest.approx(np.mean(record["tag"]))
    assert final["forgetting"] is None
    assert run.arrays_names() == ["features-03", "task-03"]


def test_a_finished_run_is_not_trained_again(finetune: FinishedRun) -> None:
    path = finetune.run.path
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"}
    run, seen = resumed(finetune.config, path)
    assert seen == []
    assert run.final() == finetune.run.final()
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"} == before


def test_another_configuration_does_not_touch_the_folder(finetune: FinishedRun) -> None:
    other = Case("finetune", "official").config(seed=2)
    before = (finetune.run.path / "metrics.jsonl").read_bytes()
    with pytest.raises(GcabError, match=r"was started with config\.seed = 1, but this command has 2"):
        train_run(other, data_for(other), finetune.run.path, CPU, ignore)
    assert (finetune.run.path / "metrics.jsonl").read_bytes() == before


def test_a_run_goes_on_with_the_images_it_began_with(tmp_path: Path) -> None:
    config = Case("eye", "official").config()
    data = data_for(config)
    final = train_run(config, data, tmp_path, CPU, ignore)
    assert train_run(config, data, tmp_path, CPU, ignore) == final
    other = replace(data, test=replace(data.test, images=255 - data.test.images))
    with pytest.raises(GcabError, match="was started with other images of the same classes"):
        train_run(config, other, tmp_path, CPU, ignore)


def test_a_run_folder_has_one_writer(tmp_path: Path) -> None:
    config = Case("finetune", "official").config()
    with RunLock(tmp_path), pytest.raises(GcabError, match="another gcab process"):
        train_run(config, data_for(config), tmp_path, CPU, ignore)
    assert not (tmp_path / "config.json").exists()


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("harm", [flip_a_byte, cut_in_half, Path.unlink], ids=["flipped", "cut", "gone"])
def test_after_damage_the_checkpoint_before_is_used(
    harm: Callable[[Path], None], finetune: FinishedRun, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    stopped(finetune.config, path, "epoch", task=2, epoch=2)
    *_, newest = sorted((path / "checkpoint").glob("*.safetensors"))
    harm(newest)
    run, seen = resumed(finetune.config, path)
    [warning] = [record["text"] for record in seen if record["kind"] == "warning"]
    assert newest.with_suffix(".json").name in warning
    assert "not used" in warning
    [again] = [record for record in seen if record["kind"] == "resumed"]
    assert (again["task"], again["epoch"]) == (2, 0)
    same_results(run, finetune.run)


def test_without_an_intact_checkpoint_nothing_is_overwritten(tmp_path: Path) -> None:
    config = Case("finetune", "official").config()
    stopped(config, tmp_path, "epoch", task=2, epoch=2)
    for file in (tmp_path / "checkpoint").glob("*.safetensors"):
        flip_a_byte(file)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(GcabError, match=r"no checkpoint in .* can be used"):
        resumed(config, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_run_stopped_before_its_first_checkpoint_starts_again(finetune: FinishedRun, tmp_path: Path) -> None:
    path = tmp_path / "run"
    stopped(finetune.config, path, "epoch", task=1, epoch=1)
    assert not list((path / "checkpoint").glob("*.json"))
    torch.manual_seed(123)
    run, seen = resumed(finetune.config, path)
    assert "resumed" not in {record["kind"] for record in seen}
    same_results(run, finetune.run)


def test_a_torn_last_line_is_written_again(finetune: FinishedRun, tmp_path: Path) -> None:
    path = tmp_path / "run"
    stopped(finetune.config, path, "task", task=2)
    with (path / "metrics.jsonl").open("ab") as metrics:
        metrics.write(b'{"kind": "epoch", "ta')
    same_results(resumed(finetune.config, path)[0], finetune.run)


def test_the_time_of_earlier_parts_counts(tmp_path: Path) -> None:
    config = Case("finetune", "official").config()
    stopped(config, tmp_path, "epoch", task=2, epoch=2)
    store = CheckpointStore(tmp_path / "checkpoint")
    checkpoint, _ = store.load_latest()
    assert checkpoint is not None
    store.save(checkpoint.position | {"seconds": 1000.0}, checkpoint.state)
    run, _ = resumed(config, tmp_path)
    final = run.final()
    assert final is not None
    assert 1000 < final["seconds"] < 1100


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_keeps_the_last_good_checkpoint(
    poison: float, finetune: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    calls = 0
    healthy = Finetune.loss

    def loss(self: Finetune, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        nonlocal calls
        calls += 1
        factor = poison if calls == 8 else 1.0  # two steps an epoch, two epochs a task
        return {name: term * factor for name, term in healthy(self, batch, progress).items()}

    with monkeypatch.context() as patched:
        patched.setattr(Finetune, "loss", loss)
        with pytest.raises(GcabError, match="task 2, epoch 2, step 2: the last good checkpoint is kept"):
            train_run(finetune.config, data_for(finetune.config), path, CPU, ignore, checkpoint_seconds=0)
    checkpoint, warnings = CheckpointStore(path / "checkpoint").load_latest()
    assert checkpoint is not None
    assert not warnings
    assert (checkpoint.position["task"], checkpoint.position["epoch"]) == (1, 1)
    assert all(bool(value.isfinite().all()) for value in checkpoint.state["method"].values())
    same_results(resumed(finetune.config, path)[0], finetune.run)


def test_a_rate_far_too_high_ends_in_a_sentence(tmp_path: Path) -> None:
    config = Case("finetune", "official").config(changes={"training.lr": 1e30, "training.warmup_epochs": 0})
    with pytest.raises(GcabError, match=r"the loss became .* in task 1, epoch \d, step \d"):
        train_run(config, data_for(config), tmp_path, CPU, ignore)


def test_other_seeds_and_other_data_give_other_results(finetune: FinishedRun, tmp_path: Path) -> None:
    other = finished_run(Case("finetune", "official").config(seed=2), tmp_path / "run")
    ours, theirs = weights(finetune.run), weights(other.run)
    assert ours.keys() == theirs.keys()
    assert not torch.equal(ours["network.encoder.patches.weight"], theirs["network.encoder.patches.weight"])
    assert run_path(tmp_path, other.config) == tmp_path / "digits/3" / "finetune" / f"2-{config_hash(other.config)}"
