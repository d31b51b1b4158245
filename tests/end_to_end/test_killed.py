"""A run that is killed again and again ends as the one that was left alone, bit for bit."""

import time
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import succeeds
from helpers.processes import LIMIT, records, start, without_seconds
from helpers.settings import train_flags

from gcab.cli.main import main
from gcab.runs.folder import RunFolder

pytestmark = pytest.mark.repeats

EPOCHS = 3
TRAIN = ["train", "digits/5", *train_flags("gcab", {"training.epochs": EPOCHS})]


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    assert main([*TRAIN, "--run", str(folder / "run")]) == 0
    return folder / "run"


def kill_after(epochs: int, folder: Path) -> None:
    """Train until this many epochs of the whole run are written, then give the process no chance to say goodbye."""
    process = start(*TRAIN, "--run", "run", folder=folder)
    until = time.monotonic() + LIMIT
    while len(records(folder / "run", "epoch")) < epochs:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -9


def test_a_run_killed_at_several_moments(left_alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    for epochs in (1, EPOCHS + 1, 3 * EPOCHS):  # before any checkpoint; early in a task; at the end of one
        kill_after(epochs, tmp_path)
        assert records(run, "final") == []
    assert "gcab  continuing: task " in succeeds(capsys, *TRAIN, "--run", run)
    assert without_seconds(records(run)) == without_seconds(records(left_alone))
    weights = [(path / "model" / "weights.safetensors").read_bytes() for path in (run, left_alone)]
    assert weights[0] == weights[1]
    same_predictions(RunFolder.open(run), RunFolder.open(left_alone))
    leftovers = [path.name for path in run.rglob(".*")]
    assert leftovers == []


def same_predictions(one: RunFolder, other: RunFolder) -> None:
    assert one.arrays_names() == other.arrays_names()
    for name in one.arrays_names():
        ours, theirs = one.load_arrays(name), other.load_arrays(name)
        assert ours is not None
        assert theirs is not None
        assert ours.keys() == theirs.keys()
        for key in ours:
            np.testing.assert_array_equal(ours[key], theirs[key])
