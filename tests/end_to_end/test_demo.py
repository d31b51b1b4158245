"""The demo keeps its promise, in short: without stored images GCAB remembers what fine-tuning forgets."""

import io
import os
import re
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.processes import gcab, records

from gcab.cli import demonstration
from gcab.cli.demonstration import METHODS, SCENARIO, training_beside, verdict
from gcab.cli.main import main
from gcab.config import RunConfig, resolve
from gcab.errors import GcabError
from gcab.evaluation.metrics import summary_of_part
from gcab.methods.gcab import UNCOMPENSATED
from gcab.model.referee import HEADS
from gcab.profiles import DEFAULT_PROFILE
from gcab.runs.folder import RunFolder
from gcab.runs.run import load_data, run_path, train_run

pytestmark = pytest.mark.usefixtures("forked_interpreters")

SLOW = pytest.mark.skipif("GCAB_SLOW" not in os.environ, reason="takes minutes: set GCAB_SLOW=1 to run it")
SHORT: dict[str, dict[str, Any]] = {  # what is different in a tenth of the time; what forgets needs few epochs to do so
    "finetune": {"training.epochs": 3},
    "eye": {"options.features": 512},
    "gcab": {"training.epochs": 10, "options.eye": 512},
}


def run_of(folder: Path, method: str, seed: int) -> Path:
    [run] = (folder / "runs" / "digits" / "5" / method).glob(f"{seed}-*")
    return run


def shortened(scenario: str, method: str, profile: str, seed: int = 1) -> RunConfig:
    return resolve(scenario, method, profile, seed, SHORT.get(method, {}))


@contextmanager
def training_here(method: str, root: Path, seed: int) -> Iterator[None]:
    """What another process would do, with a setting that it could not be told."""
    yield
    config = shortened(SCENARIO, method, DEFAULT_PROFILE, seed)
    train_run(config, load_data(config, None), run_path(root, config), torch.device("cpu"), lambda _: None)


@pytest.fixture(scope="module")
def short(rough_embedding: None) -> Iterator[None]:
    """The demo's methods with fewer epochs and features."""
    del rough_embedding
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstration, "resolve", shortened)
        patch.setattr(demonstration, "training_beside", training_here)
        yield


def printed_by_demo(folder: Path) -> str:
    with chdir(folder), redirect_stdout(io.StringIO()) as out:
        assert main(["demo"]) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, short: None) -> Path:
    del short
    folder = tmp_path_factory.mktemp("demo")
    (folder / "printed.txt").write_text(printed_by_demo(folder))
    return folder


@pytest.mark.repeats
def test_gcab_remembers_what_fine_tuning_forgets(demo: Path) -> None:
    [ours] = records(run_of(demo, "gcab", 1), "final")
    [baseline] = records(run_of(demo, "finetune", 1), "final")
    assert ours["acc_tag"] >= 2 * baseline["acc_tag"]
    assert ours["acc_taw"] >= 95
    assert ours["bytes"]["images"] == 0


def test_the_demo_shows_all_methods_and_writes_a_report(demo: Path) -> None:
    printed = (demo / "printed.txt").read_text()
    page = (demo / "runs" / "demo.html").read_text()
    for method in METHODS:
        assert len(re.findall(rf"^{method}  task \d of 5 learned: ", printed, re.MULTILINE)) == 5
        assert re.search(rf"^│ {method} ", printed, re.MULTILINE)
        assert method in page
    assert "Report: runs/demo.html" in printed


def test_the_demo_says_whether_gcab_beats_every_baseline(demo: Path) -> None:
    line = verdict({method: RunFolder.open(run_of(demo, method, 1)) for method in METHODS})
    assert line in (demo / "printed.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("ours", "said"), [(90.0, "10.0 points above"), (79.5, "0.5 points below"), (80.01, "level with")]
)
def test_a_lost_comparison_is_called_so(ours: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = {"finetune": 18.0, "untrained": 80.0, "eye": 40.0, "gcab": ours}
    monkeypatch.setattr(RunFolder, "final", lambda run: {"acc_tag": reached[run.method]})
    runs = {method: RunFolder(Path(), {"config": {"method": method}}) for method in METHODS}
    assert verdict(runs) == f"gcab is {said} the best baseline, untrained."


def test_a_second_demo_trains_nothing(demo: Path) -> None:
    metrics = run_of(demo, "gcab", 1) / "metrics.jsonl"
    before = metrics.read_bytes()
    assert "of 5 learned" not in printed_by_demo(demo)
    assert metrics.read_bytes() == before


def test_another_process_trains_meanwhile(tmp_path: Path) -> None:
    with training_beside("untrained", tmp_path / "runs", seed=1):
        pass
    assert RunFolder.open(run_of(tmp_path, "untrained", 1)).final() is not None
    beside = training_beside("nothing", tmp_path / "runs", seed=1)
    with pytest.raises(GcabError, match=r"training nothing failed: .*unknown method 'nothing'"), beside:
        pass


def test_compensation_undoes_most_of_the_drift(demo: Path) -> None:
    last = records(run_of(demo, "gcab", 1), "task")[-1]
    assert [entry["task"] for entry in last["drift"]] == [1, 2, 3, 4]
    assert all(entry["compensated"] < 0.5 * entry["raw"] for entry in last["drift"])


def test_old_heads_read_compensated_features_better(demo: Path) -> None:
    last = records(run_of(demo, "gcab", 1), "task")[-1]
    before, after = (summary_of_part(last, last["views"][name]) for name in (UNCOMPENSATED, HEADS))
    assert after["acc_taw"] >= before["acc_taw"] + 3


@SLOW
def test_the_promise_holds_over_three_seeds(tmp_path: Path) -> None:
    totals = {"gcab": {"acc_tag": 0.0, "acc_taw": 0.0}, "finetune": {"acc_tag": 0.0, "acc_taw": 0.0}}
    for seed in (1, 2, 3):
        assert gcab("demo", "--seed", str(seed), folder=tmp_path).returncode == 0
        for method, total in totals.items():
            [final] = records(run_of(tmp_path, method, seed), "final")
            print(method, seed, final["acc_tag"], final["acc_taw"])
            for name in total:
                total[name] += final[name] / 3
    assert totals["gcab"]["acc_tag"] >= 2 * totals["finetune"]["acc_tag"]
    assert totals["gcab"]["acc_taw"] >= 95
