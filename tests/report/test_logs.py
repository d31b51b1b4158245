"""A log that was edited by hand, or lost a part, is refused by every command that shows runs, with file and field."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.synthetic_runs import write_comparison, write_run

from gcab.cli.main import main
from gcab.errors import GcabError
from gcab.report.logs import check_log
from gcab.runs.folder import RunFolder

Record = dict[str, Any]
TASKS = 3


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("intact"), "gcab", 1, TASKS, epochs=1).path


@pytest.fixture
def run(intact: Path, tmp_path: Path) -> Path:
    """A finished run of its own for every test."""
    return Path(shutil.copytree(intact, tmp_path / "run"))


def edit_line(run: Path, kind: str, change: Callable[[Record], object]) -> int:
    """Changes the last line of a kind, and returns its number."""
    file = run / "metrics.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    number = max(index for index, record in enumerate(records) if record["kind"] == kind)
    change(records[number])
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return number + 1


def refusals(run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each command says, which is one line, and leaves everything as it was."""
    monkeypatch.chdir(run.parent)
    before = sorted(path for path in run.parent.rglob("*"))
    said = []
    for command in (["report"], ["compare"], ["evaluate"], ["figure", "main"], ["figure", "ablation"]):
        assert main([*command, str(run)]) == 2
        said.append(capsys.readouterr().err)
        assert said[-1].count("\n") == 1
    assert sorted(path for path in run.parent.rglob("*")) == before
    return said


@pytest.mark.parametrize("field", ["task", "tag", "taw", "classes", "task_identification", "parameters", "bytes"])
def test_a_field_that_a_task_has_lost(
    field: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = edit_line(run, "task", lambda record: record.pop(field))
    for said in refusals(run, capsys, monkeypatch):
        assert f"line {number} of {run / 'metrics.jsonl'} is damaged ({field} is missing): restore it" in said


@pytest.mark.parametrize(
    ("kind", "change", "flaw"),
    [
        ("task", {"task": "3"}, 'task is "3", not a whole number from 1'),
        ("task", {"task": 0}, "task is 0, not a whole number from 1"),
        ("task", {"tag": 12.5}, "tag is 12.5, not a list"),
        ("task", {"tag": [1.0, None, 3.0]}, "tag.1 is null, not a number"),
        ("task", {"tag": [1.0, 2.0]}, "tag has 2 values for 3 tasks"),
        ("task", {"classes": [4, 4]}, "classes is [4, 4], with [4, 4, 4] in config.json"),
        ("task", {"views": None}, "views is null, not an object"),
        ("task", {"views": {"heads": {"tag": [1.0], "taw": [1.0]}}}, "views.heads.task_identification is missing"),
        (
            "task",
            {"views": {"heads": {"tag": [1.0], "taw": [1.0], "task_identification": 1}}},
            "views.heads.tag has 1 values for 3 tasks",
        ),
        ("task", {"capacity": {"input": 0.5}}, "capacity.hidden is missing"),
        ("task", {"drift": [{"task": 1, "raw": "far"}]}, 'drift.0.raw is "far", not a number'),
        ("task", {"probe": {"before": 1.0}}, "probe.untrained is missing"),
        ("task", {"bytes": {"model": "55 MB"}}, 'bytes.model is "55 MB", not a whole number'),
        ("final", {"acc_tag": True}, "acc_tag is true, not a number"),
        ("final", {"forgetting": "none"}, 'forgetting is "none", not a number'),
        ("final", {"seconds": "x" * 99}, f'seconds is "{"x" * 38}…, not a number'),
        ("epoch", {"losses": [0.5]}, "losses is [0.5], not an object"),
        ("epoch", {"epochs": 0}, "epochs is 0, not a whole number from 1"),
    ],
)
def test_a_field_of_another_type(
    kind: str,
    change: Record,
    flaw: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = edit_line(run, kind, lambda record: record.update(change))
    for said in refusals(run, capsys, monkeypatch):
        assert f"line {number} of {run / 'metrics.jsonl'} is damaged ({flaw}): restore it" in said


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        (lambda document: document["config"].pop("profile"), "config.profile is missing"),
        (lambda document: document["config"].update(seed="x"), "config.seed is not a whole number"),
        (lambda document: document["config"].pop("options"), "config.options is missing"),
        (lambda document: document["config"]["training"].pop("epochs"), "config.training.epochs is missing"),
        (
            lambda document: document["config"]["training"].update(epochs="many"),
            'config.training.epochs is "many", not',
        ),
        (lambda document: document["config"]["scenario"].update(name=5), "config.scenario.name is 5, not text"),
        (lambda document: document.update(tasks=["cat", "dog"]), 'tasks.0 is "cat", not a list'),
        (lambda document: document.update(commit=123), "commit is 123, not text"),
        (lambda document: document.update(commit_corrected=7), "commit_corrected is 7, not text"),
    ],
)
def test_a_configuration_that_lacks_something(
    change: Callable[[Record], object],
    flaw: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = json.loads((run / "config.json").read_text())
    change(document)
    (run / "config.json").write_text(json.dumps(document))
    for said in refusals(run, capsys, monkeypatch):
        assert f"{run / 'config.json'} is damaged ({flaw}" in said


@pytest.mark.parametrize(
    ("lost", "flaw"),
    [({2}, "task is 3 after task 1"), ({3}, "it follows task 2 of 3"), ({1, 2, 3}, "it follows task 0 of 3")],
)
def test_lines_that_were_deleted(lost: set[int], flaw: str, run: Path) -> None:
    file = run / "metrics.jsonl"
    kept = [
        line
        for line in file.read_text().splitlines()
        if (record := json.loads(line))["kind"] != "task" or record["task"] not in lost
    ]
    file.write_text("\n".join(kept) + "\n")
    with pytest.raises(GcabError, match=flaw):
        check_log(RunFolder.open(run))


def test_what_gcab_writes_is_not_refused(tmp_path: Path) -> None:
    for run in (*write_comparison(tmp_path, tasks=2), write_run(tmp_path, "gcab", 3, 2, learned=1)):
        check_log(run)
    run.append({"kind": "note", "of": "another version"})
    run.append(run.records("task")[0])  # repeated after an interruption
    check_log(run)
