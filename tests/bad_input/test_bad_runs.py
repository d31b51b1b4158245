"""Run folders that are damaged, foreign, busy or out of space: nothing that was saved earlier is lost."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.commands import DIGITS, refusal, sentence, succeeds
from helpers.photos import make_photos
from helpers.processes import unmeasured

from gcab.cli.main import main
from gcab.methods.finetune import Finetune
from gcab.runs.lock import RunLock

pytestmark = pytest.mark.usefixtures("forked_interpreters")

LIMITED = """
import resource, sys
from gcab.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main([*DIGITS, "--run", str(run)]) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run of its own for every test."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def finals(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "final"]


@pytest.mark.repeats
def test_another_configuration(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(run)
    said = refusal(capsys, *DIGITS, "--training.epochs", "2", "--run", run)
    assert f"{run} was started with config.training.epochs = 1, but this command has 2" in said
    assert "config.seed = 1, but this command has 2" in refusal(capsys, *DIGITS, "--seed", "2", "--run", run)
    after = content(run)
    assert {**after, "lock": b""} == {**before, "lock": b""}


def test_another_version_or_format(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run / "config.json", lambda document: document["versions"].update(gcab="99.1.0"))
    assert 'gcab version = "99.1"' in refusal(capsys, *DIGITS, "--run", run)
    edit(run / "config.json", lambda document: document.update(format=99))
    for command in ([*DIGITS, "--run"], ["report"], ["compare"], ["evaluate"]):
        assert "config.json has format 99, this gcab reads format 1" in refusal(capsys, *command, run)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": 1}'])
def test_a_damaged_config(damage: bytes, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "config.json").write_bytes(damage)
    for command in ([*DIGITS, "--run"], ["report"], ["compare"], ["evaluate"]):
        assert "config.json is damaged" in refusal(capsys, *command, run)
    assert (run / "model" / "weights.safetensors").exists()


def test_damaged_metrics(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = run / "metrics.jsonl"
    metrics.write_bytes(b"garbage\n" + metrics.read_bytes())
    for command in ([*DIGITS, "--run"], ["report"], ["compare"], ["evaluate"]):
        assert f"line 1 of {metrics} is damaged" in refusal(capsys, *command, run)


def test_a_torn_last_line_is_measured_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [before] = finals(run)
    metrics = run / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-20])
    assert "finetune  continuing: task 2" in succeeds(capsys, *DIGITS, "--run", run)
    [after] = finals(run)
    assert {**after, "seconds": 0} == {**before, "seconds": 0}


def test_a_damaged_model(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = run / "model" / "weights.safetensors"
    intact = weights.read_bytes()
    weights.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    assert "does not match its model.json" in refusal(capsys, "evaluate", run)
    weights.unlink()
    assert "weights.safetensors is missing" in refusal(capsys, "evaluate", run)
    (run / "model" / "model.json").write_text("{")
    assert "is damaged" in refusal(capsys, "evaluate", run)


def test_a_run_without_a_model(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that was published, or stopped before its first task ended, wherever a model is needed."""
    image = make_photos(tmp_path, ["ant"], count=1) / "ant" / "000.png"
    asked = [("evaluate", run), ("predict", run, image), ("export", run, tmp_path / "out.onnx"), ("info", run)]
    asked += [("audit", run), ("serve", run), ("distill", run), ("undo", run)]
    before, after = (
        f"the run {run} has no model yet, as its first",
        "continues it (gcab train digits/2 --method finetune",
    )
    (run / "model").rename(run / ".model.old")  # a save that was killed
    assert "2 tasks" in succeeds(capsys, "info", run)
    shutil.rmtree(run / "model")
    for arguments in asked:
        assert f"only the log of the run {run} is here, its model is not: copy" in refusal(capsys, *arguments)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0])
    for arguments in asked:
        said = refusal(capsys, *arguments)
        assert before in said
        assert after in said


def test_a_file_in_the_place_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("years of work")
    for option, place in (("--run", file), ("--run", file / "below"), ("--runs", file)):
        assert str(file) in refusal(capsys, *DIGITS, option, place)
    assert file.read_text() == "years of work"


def test_a_foreign_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    said = refusal(capsys, *DIGITS, "--run", tmp_path)
    assert f"{tmp_path} is not a run folder and not empty (it has thesis.txt)" in said
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert not (tmp_path / "config.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "no permission to save" in refusal(capsys, *DIGITS, "--runs", tmp_path / "locked")


def test_a_second_process_in_the_same_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(run)
    with RunLock(run):
        said = refusal(capsys, *DIGITS, "--run", run)
    assert f"another gcab process (pid {os.getpid()}) is working in {run}" in said
    assert {**content(run), "lock": b""} == {**before, "lock": b""}


@pytest.mark.usefixtures("rough_embedding")
def test_a_report_that_cannot_be_written(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    assert str(tmp_path / "page") in refusal(capsys, "report", run, "--out", tmp_path / "page")


def test_a_loss_that_explodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wild = [*DIGITS, "--training.lr", "1e30", "--training.warmup_epochs", "0", "--run", str(tmp_path / "run")]
    said = refusal(capsys, *wild)
    assert "in task 1, epoch 1, step " in said
    assert "try a lower training.lr" in said
    assert refusal(capsys, *wild) == said  # it starts again and fails in the same place


def test_a_loss_that_explodes_later_leaves_the_last_good_checkpoint(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    intact = Finetune.loss

    def explode(self: Finetune, *arguments: Any) -> dict[str, torch.Tensor]:
        terms = intact(self, *arguments)
        return {name: term * (float("nan") if len(self.network.head.parts) == 2 else 1) for name, term in terms.items()}

    with monkeypatch.context() as patched:
        patched.setattr(Finetune, "loss", explode)
        said = refusal(capsys, *DIGITS, "--run", tmp_path / "run")
    assert said.startswith("the loss became not a number in task 2, epoch 1, step 1: the last good checkpoint is kept")
    assert "continuing: task 2" in succeeds(capsys, *DIGITS, "--run", tmp_path / "run")
    assert weights(tmp_path / "run") == weights(finished)


def test_no_room_for_a_larger_file(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit on the size of files lets the first task through and stops the second, whose head is larger."""
    run = tmp_path / "run"
    limit = (finished / "model" / "weights.safetensors").stat().st_size - 1
    command = [sys.executable, "-c", LIMITED, str(limit), *DIGITS, "--run", str(run)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=unmeasured()
    )  # coverage writes too
    assert done.returncode == 2
    said = sentence(done.stderr)
    assert "weights.safetensors (File too large)" in said
    assert "nothing saved earlier was lost" in said
    assert len(json.loads((run / "model" / "model.json").read_text())["tasks"]) == 1
    assert "continuing: task 2" in succeeds(capsys, *DIGITS, "--run", run)
    assert weights(run) == weights(finished)


@pytest.mark.parametrize("saved", range(1, 30, 4))
def test_a_full_disk_at_any_moment(
    saved: int,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intact, left = os.fsync, saved

    def full(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        intact(descriptor)

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        said = refusal(capsys, *DIGITS, "--run", run)
    assert said.startswith("disk full while saving ")
    assert "free some space and run the same command again; nothing saved earlier was lost" in said
    succeeds(capsys, *DIGITS, "--run", run)
    assert weights(run) == weights(finished)


def weights(run: Path) -> bytes:
    return (run / "model" / "weights.safetensors").read_bytes()


def test_photos_of_other_classes_are_not_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = [*DIGITS[2:], "--scenario.image_size", "16"]
    photos = make_photos(tmp_path / "four", "abcd", count=5, side=16)
    succeeds(capsys, "train", "folder/2", *tiny, "--data", photos, "--run", tmp_path / "run")
    other = make_photos(tmp_path / "five", "abcde", count=5, side=16)
    assert "classes" in refusal(capsys, "evaluate", tmp_path / "run", "--data", other)
