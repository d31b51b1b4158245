"""Processes that are killed for good, at moments nobody chose: the run they leave behind goes on as if nothing was."""

import multiprocessing
import random
import signal
import time
from pathlib import Path

import pytest
from helpers.runs import CPU, Case, data_for, finished_run, ignore, same_results

from gcab.runs.folder import RunFolder
from gcab.runs.run import train_run

pytestmark = [pytest.mark.repeats, pytest.mark.usefixtures("forked_interpreters")]

KILLS = 3


def train(case: Case, path: Path) -> None:
    config = case.config()
    train_run(config, data_for(config), path, CPU, ignore, checkpoint_seconds=0)


def records_in(path: Path) -> int:
    metrics = path / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


# ER's memory changes at the end of a task, DER++'s in every step, and DyTox trains once more when a task ends.
CASES = [Case("gcab", "extended"), *(Case(name, "official") for name in ("er", "derpp", "dytox"))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_killed_run_ends_as_if_it_had_never_been_killed(case: Case, tmp_path: Path) -> None:
    expected = finished_run(case.config(), tmp_path / "whole").run
    path = tmp_path / "killed"
    server = multiprocessing.get_context("forkserver")  # loads torch once, and each process starts from there
    server.set_forkserver_preload(["gcab.runs.run", "torch._dynamo", "pytest"])
    moments, codes = [], []
    for _ in range(KILLS):
        process = server.Process(target=train, args=(case, path))
        process.start()
        enough, delay = records_in(path) + random.randint(0, 2), random.uniform(0, 0.05)
        moments.append((enough, delay))
        while process.is_alive() and records_in(path) < enough:
            time.sleep(0.001)
        time.sleep(delay)
        process.kill()
        process.join()
        codes.append(process.exitcode)
    assert codes[0] == -signal.SIGKILL
    assert set(codes) <= {0, -signal.SIGKILL}, f"the run failed by itself, after {moments}"
    train_run(case.config(), data_for(case.config()), path, CPU, ignore, checkpoint_seconds=0)
    try:
        same_results(RunFolder.open(path), expected)
    except AssertionError as difference:
        raise AssertionError(f"killed after (records, seconds) {moments}: {difference}") from difference
