"""Two processes compute what one does, and stay the same as each other bit for bit."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from helpers.processes import ranks
from helpers.spread_runs import CASES, CPU, config_of, data_of, tasks_of

from gcab.runs.folder import RunFolder
from gcab.runs.run import train_run

pytestmark = pytest.mark.repeats

RANKS = 2
# Distances from a frozen copy begin at 0, where rounding counts: in one process, too, a loss off by 1e-7 moves them so.
ROUNDING = {"anchors": 1e-2, "distillation": 1e-2}


@pytest.fixture(scope="module")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs of two processes, whose own checks have passed."""
    folder = tmp_path_factory.mktemp("shared")
    finished = ranks(RANKS, folder, module="helpers.spread_ranks")
    assert [rank.returncode for rank in finished] == [0] * RANKS, "\n".join(rank.stderr for rank in finished)
    return folder


def test_a_rank_that_fails_is_heard_and_ends_the_others() -> None:
    waiting, failed = ranks(RANKS, module="helpers.failing_rank")
    assert failed.returncode == 1
    assert "RuntimeError: before it has met the other" in failed.stderr
    assert waiting.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("method", "profile"), CASES)
def test_two_processes_have_the_losses_and_accuracies_of_one(
    shared_runs: Path, tmp_path: Path, method: str, profile: str
) -> None:
    config = config_of(method, profile)
    train_run(config, data_of(config), tmp_path / "alone", CPU, lambda _: None)
    alone, shared = RunFolder.open(tmp_path / "alone"), RunFolder.open(shared_runs / f"{method}-{profile}")
    epochs = alone.records("epoch")
    assert len(epochs) == 2 * tasks_of(method)
    for one, two in zip(epochs, shared.records("epoch"), strict=True):
        assert two["losses"].keys() == one["losses"].keys()
        for name, value in one["losses"].items():
            assert two["losses"][name] == pytest.approx(value, rel=ROUNDING.get(name, 1e-5)), name
        assert (two["step"], two["lr"]) == (one["step"], one["lr"])
    for task, same in zip(map(dict, alone.records("task")), map(dict, shared.records("task")), strict=True):
        for name in ("tag", "taw", "task_identification", "parameters", "bytes", "images", "probe"):
            assert same[name] == task[name]
        assert same["capacity"] == pytest.approx(task["capacity"], rel=1e-5)
    assert alone.arrays_names() == shared.arrays_names() != []
    for name in alone.arrays_names():
        ours, theirs = alone.load_arrays(name), shared.load_arrays(name)
        assert ours is not None
        assert theirs is not None
        for key in ours:
            np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-2, atol=1e-2)  # half precision


def test_all_ranks_hold_the_same_bits_after_every_epoch_and_task(shared_runs: Path) -> None:
    first, second = (json.loads((shared_runs / f"digests-{rank}.json").read_text()) for rank in range(RANKS))
    assert first.keys() == {f"{method}-{profile}" for method, profile in CASES}
    assert first == second
    for method, profile in CASES:
        digests = first[f"{method}-{profile}"]
        assert len(set(digests)) >= 2 * tasks_of(method), f"{method}-{profile} does not learn in every epoch"


def test_only_one_process_writes_a_run(shared_runs: Path) -> None:
    for method, profile in CASES:
        run = RunFolder.open(shared_runs / f"{method}-{profile}")
        assert [record["kind"] for record in run.records()].count("final") == 1
        assert [record["task"] for record in run.records("task")] == [*range(1, tasks_of(method) + 1)]
