"""`torchrun -m gcab train`: killed, continued by another number of processes, refused."""

import os
import signal
import time
from pathlib import Path

import pytest
from helpers.prepared import Program
from helpers.processes import LIMIT, ranks, ranks_of, records, start_ranks, torchrun
from helpers.settings import train_flags

from gcab.cli.main import main, make_parser
from gcab.cli.train import changes_of
from gcab.config import resolve
from gcab.runs.folder import RunFolder
from gcab.runs.lock import RunLock
from gcab.runs.run import run_path

pytestmark = pytest.mark.repeats

SHORT = {"encoder.blocks": 2, "encoder.mlp_ratio": 4.0, "training.epochs": 2, "training.batch_size": 48}
TRAIN = ["train", "digits/2", "--device", "cpu", *train_flags("gcab", {**SHORT, "training.warmup_epochs": 1})]


def folder_of(runs: Path) -> Path:
    """Where the run will be."""
    verb = make_parser(TRAIN).parse_args(TRAIN)
    return run_path(runs, resolve(verb.scenario, verb.method, verb.profile, verb.seed, changes_of(verb)))


def wait_for_task(path: Path, task: int, process: Program) -> None:
    """Until the task is being trained."""
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        if any(record["task"] == task for record in records(path, "epoch")):
            return
        time.sleep(0.01)
    raise AssertionError(f"task {task} never began: {process.communicate()[1]}")


def test_a_run_of_two_killed_processes_is_continued_by_three_to_the_end_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder_of(tmp_path / "shared")
    launcher = start_ranks(2, "-m", "gcab", *TRAIN, "--runs", tmp_path / "shared")
    with launcher:
        wait_for_task(path, 2, launcher)
        processes = ranks_of(launcher)
        assert len(processes) == 2
        for process in processes:
            os.kill(process, signal.SIGKILL)
        launcher.communicate(timeout=LIMIT)
    assert launcher.returncode != 0
    assert RunFolder.open(path).final() is None

    finished = ranks(3, *TRAIN, "--runs", tmp_path / "shared")
    assert [rank.returncode for rank in finished] == [0, 0, 0], [rank.stderr for rank in finished]
    said = "".join(rank.stdout for rank in finished)
    assert said.count("gcab  continuing: task 2") == 1
    assert said.count("ACC_TAG") == 1
    assert RunFolder.open(path).document["device"].startswith("2 x CPU")

    assert main([*TRAIN, "--runs", str(tmp_path / "alone")]) == 0
    assert "ACC_TAG" in capsys.readouterr().out
    shared, alone = RunFolder.open(path), RunFolder.open(folder_of(tmp_path / "alone"))
    for one, many in zip(alone.records("epoch"), shared.records("epoch"), strict=True):
        assert many["losses"] == pytest.approx(one["losses"], rel=1e-5)
    for task, same in zip(alone.records("task"), shared.records("task"), strict=True):
        assert (same["tag"], same["taw"]) == (task["tag"], task["taw"])


def test_a_problem_of_the_first_process_is_told_once_and_ends_all(tmp_path: Path) -> None:
    with RunLock(folder_of(tmp_path)):
        began = time.monotonic()
        refused = torchrun(2, "-m", "gcab", *TRAIN, "--runs", tmp_path)
    assert refused.returncode != 0
    assert refused.stderr.count("another gcab process") == 1
    assert "Connection closed" not in refused.stderr
    assert time.monotonic() - began < LIMIT / 4


def test_a_problem_of_all_processes_is_told_once(tmp_path: Path) -> None:
    refused = torchrun(2, "-m", "gcab", *TRAIN, "--runs", tmp_path, "--training.batch_size", "15")
    assert refused.returncode != 0
    sentence = "gcab: a batch of 15 of the task's 651 images cannot be shared equally by 2 processes"
    assert refused.stderr.count(sentence) == 1
    assert refused.stdout == ""
