"""Runs side by side are the runs they would be one after another, and end when the command ends."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from helpers.processes import LIMIT, start
from helpers.recipes import SHORT, jobs_of, made
from helpers.settings import FEW_FEATURES, set_flags

from gcab.cli.main import main
from gcab.paper.jobs import chosen
from gcab.runs.folder import RunFolder, find_runs

pytestmark = pytest.mark.usefixtures("small_eyes", "rough_embedding", "forked_interpreters")

SETTINGS = set_flags({**SHORT, **FEW_FEATURES})


def figure(*arguments: object) -> list[str]:
    return ["figure", "embedding", "--scenario", "digits/2", "--device", "cpu", *map(str, arguments), *SETTINGS]


def losses(run: RunFolder) -> list[Mapping[str, float | None]]:
    return [record["losses"] for record in run.records("epoch")]


def test_two_runs_at_a_time_are_the_same_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = figure("--runs", tmp_path / "runs", "--out", tmp_path / "out", "--epochs", 1, "--at-once", 2)
    assert main(arguments) == 0
    text = capfd.readouterr().out
    assert "1 of 2: digits/2, without PFR: ACC_TAG" in text
    assert "2 of 2: digits/2, with PFR: ACC_TAG" in text
    assert (tmp_path / "out" / "embedding.png").exists()
    alone = {run.path.name: run for run in made(jobs_of("embedding", tmp_path / "alone", "digits/2"))}
    beside = {run.path.name: run for run in find_runs([tmp_path / "runs"])}
    assert beside.keys() == alone.keys()
    assert all(losses(beside[name]) == losses(alone[name]) for name in alone)


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = chosen(jobs_of("embedding", tmp_path / "runs", "digits/2"), "1")[0].path
    broken.parent.mkdir(parents=True)
    broken.write_text("a file where the run's folder should be")
    arguments = figure("--runs", tmp_path / "runs", "--out", tmp_path / "out", "--epochs", 1, "--at-once", 2)
    assert main(arguments) == 2
    said = capfd.readouterr()
    assert "2 of 2: digits/2, with PFR: ACC_TAG" in said.out
    assert "1 of 2 runs failed (digits/2, without PFR)" in said.err
    assert "Traceback" not in said.out + said.err


@pytest.mark.parametrize(
    ("who", "how", "epochs", "code", "end"),
    [
        ("command", signal.SIGINT, 500, 130, "the same command continues from the last checkpoint."),
        ("command", signal.SIGKILL, 500, -signal.SIGKILL, ""),
        ("run", signal.SIGKILL, 40, 2, "the same command continues what is left."),  # the other run goes on
    ],
)
def test_no_run_outlives_the_command(
    tmp_path: Path, who: str, how: signal.Signals, epochs: int, code: int, end: str
) -> None:
    arguments = figure("--runs", tmp_path / "runs", "--epochs", epochs, "--at-once", 2, "--tries", 1)
    program = start(*arguments, folder=tmp_path)
    logs = [job.path / "metrics.jsonl" for job in jobs_of("embedding", tmp_path / "runs", "digits/2", epochs=epochs)]
    wait_until(lambda: all(log.exists() and log.stat().st_size > 0 for log in logs), "both runs train")
    os.kill(program.pid if who == "command" else holder(logs[0]), how)
    text = "".join(program.communicate(timeout=LIMIT))  # whatever any of its processes says, to the end of the last
    assert program.returncode == code
    wait_until(lambda: not any(map(held, logs)), "nobody holds the runs")
    assert end in text
    assert "Traceback" not in text
    assert "Warning" not in text


def holder(log: Path) -> int:
    """The process that wrote its number into a run's lock."""
    return int((log.parent / "lock").read_text())


def held(log: Path) -> bool:
    """Whether it is still there."""
    try:
        os.kill(holder(log), 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(true: Callable[[], bool], what: str, seconds: float = LIMIT) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("embedding", "--at-once", "0"), "--at-once is 0: give 1 or more."),
        (("runtime", "--at-once", "2"), "the figure runtime is about time"),
        (("main", "RUN", "--at-once", "2"), "--at-once is for a recipe's own runs"),
    ],
)
def test_bad_requests_get_one_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", *arguments]) != 0
    assert sentence in capsys.readouterr().err
