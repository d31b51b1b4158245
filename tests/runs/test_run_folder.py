"""A run folder gives back what was put in it, and says clearly why it cannot be continued or read."""

import copy
import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gcab.errors import GcabError
from gcab.runs.folder import RunFolder, find_runs


def document(**changes: Any) -> dict[str, Any]:
    """A config.json with `changes` to its "config"."""
    config = {
        "profile": "quick",
        "method": "gcab",
        "seed": 1,
        "scenario": {"name": "digits-5"},
        "training": {"epochs": 20, "rates": (0.1, 0.2)},
    }
    return {
        "format": 1,
        "versions": {"gcab": "0.1.0", "torch": "2.13.0", "python": "3.11.7", "numpy": "2.4.6"},
        "commit": None,
        "device": "CPU, 1 thread",
        "command": "gcab train",
        "config": {**config, **changes},
        "tasks": [["zero", "one"], ["two", "three"]],
    }


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.prepare(tmp_path / "run", document())


LOOKS = {"train": {"of_each": [3, 2], "brightness": [10.0, 20.0]}, "test": {"of_each": [1, 1], "brightness": [15.0]}}


@pytest.mark.parametrize(
    ("split", "name", "place", "value", "same"),
    [
        ("train", "brightness", 1, 20.4, True),  # as another version of a decoder may round
        ("train", "brightness", 1, 23.0, False),
        ("test", "brightness", 0, 17.0, False),
        ("train", "of_each", 0, 4, False),
        ("test", "of_each", 1, "one", False),
    ],
)
def test_a_run_goes_on_with_its_own_images_only(
    tmp_path: Path, split: str, name: str, place: int, value: object, same: bool
) -> None:
    RunFolder.prepare(tmp_path, {**document(), "images": LOOKS})
    changed: Any = copy.deepcopy(LOOKS)
    changed[split][name][place] = value
    if same:
        RunFolder.prepare(tmp_path, {**document(), "images": changed})
    else:
        with pytest.raises(GcabError, match="was started with other images of the same classes"):
            RunFolder.prepare(tmp_path, {**document(), "images": changed})


def test_a_run_that_names_no_images_goes_on(run: RunFolder) -> None:
    """Those of earlier versions."""
    RunFolder.prepare(run.path, {**document(), "images": LOOKS})


def test_a_run_tells_what_it_is(run: RunFolder) -> None:
    again = RunFolder.open(run.path)
    assert again.document == json.loads(json.dumps(document()))
    assert (again.name, again.method, again.seed, again.scenario) == ("gcab seed 1", "gcab", 1, "digits-5")
    assert again.tasks == [["zero", "one"], ["two", "three"]]
    assert again.config["training"]["epochs"] == 20
    assert again.final() is None
    assert again.checkpoints.folder == run.path / "checkpoint"
    assert again.checkpoints is again.checkpoints
    assert [path.relative_to(run.path).as_posix() for path in (again.model, again.report, again.figures)] == [
        "model",
        "report.html",
        "figures",
    ]


def test_the_group_leaves_out_the_seed_and_its_class_order_only(tmp_path: Path) -> None:
    first = RunFolder(tmp_path, document())
    other_order = document(seed=2)
    other_order["tasks"].reverse()
    assert RunFolder(tmp_path, other_order).group == first.group
    assert RunFolder(tmp_path, document(training={"epochs": 21})).group != first.group
    assert RunFolder(tmp_path, document(method="er")).group != first.group


def test_the_same_command_continues_and_keeps_the_first_description(run: RunFolder) -> None:
    run.append({"kind": "epoch", "task": 1})
    later = document()
    later["versions"].update(gcab="0.1.7", torch="2.12.0")
    later["command"] = "gcab train --again"
    again = RunFolder.prepare(run.path, later)
    assert again.document["command"] == "gcab train"
    assert len(again.records()) == 1


def changed(path: str, value: Any) -> dict[str, Any]:
    """A document whose entry at the dotted `path` is `value`, or is missing where `value` is None."""
    result = copy.deepcopy(document())
    *parents, last = path.split(".")
    place: Any = result
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    if value is None:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return result


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("config.training.epochs", 10, "config.training.epochs = 20, but this command has 10:"),
        ("config.training.epochs", None, "config.training.epochs = 20, but this command has null"),
        ("config.training.new", True, "config.training.new = null, but this command has true"),
        ("config.seed", True, "config.seed = 1, but this command has true"),
        ("config.scenario", "plain", 'config.scenario = {"name": "digits-5"}, but this command has "plain"'),
        ("tasks.1.0", "four", 'tasks.1.0 = "two", but this command has "four"'),
        ("tasks", [["x" * 99]], 'this command has [["xxxx'),
        ("versions.gcab", "0.2.0", "gcab version = 0.1"),
    ],
)
def test_another_configuration_is_refused(run: RunFolder, path: str, value: Any, sentence: str) -> None:
    with pytest.raises(GcabError) as caught:
        RunFolder.prepare(run.path, changed(path, value))
    message = str(caught.value).replace('"0.1"', "0.1")
    assert message.startswith(f"{run.path} was started with ")
    assert sentence in message
    assert message.endswith("choose another --run folder, or delete this one to start again")
    assert len(message) < len(str(run.path)) + 260


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"format": 1', "config.json is damaged .*delete"),
        (b"\xff", "config.json is damaged"),
        (b"[]", r"config.json is damaged \(an entry is missing\)"),
        (b'{"format": 1, "config": {}}', r"an entry is missing"),
        (json.dumps({**document(), "format": 2}).encode(), "has format 2, this gcab reads format 1"),
    ],
)
def test_a_damaged_description_is_one_sentence(run: RunFolder, content: bytes, sentence: str) -> None:
    (run.path / "config.json").write_bytes(content)
    with pytest.raises(GcabError, match=sentence):
        RunFolder.prepare(run.path, document())
    with pytest.raises(GcabError, match=sentence):
        RunFolder.open(run.path)


def test_a_run_is_not_started_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(GcabError, match=r"not empty \(it has thesis.tex\)"):
        RunFolder.prepare(tmp_path, document())
    with pytest.raises(GcabError, match="is a file"):
        RunFolder.prepare(tmp_path / "thesis.tex", document())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_start_killed_early_can_be_repeated(tmp_path: Path) -> None:
    for name in ("lock", ".config.json.0a.tmp"):
        (tmp_path / name).touch()
    run = RunFolder.prepare(tmp_path, document())
    assert sorted(path.name for path in run.path.iterdir()) == ["config.json", "lock", "metrics.jsonl"]


def test_records_come_back_in_order_and_by_kind(run: RunFolder) -> None:
    run.append({"kind": "epoch", "losses": {"sparsity": math.nan, "drift": 0.1}, "rows": (1, -math.inf)})
    run.append({"kind": "task", "tag": [99.5]})
    run.append({"kind": "final", "acc_tag": 99.5})
    assert run.records() == [
        {"kind": "epoch", "losses": {"sparsity": None, "drift": 0.1}, "rows": [1, None]},
        {"kind": "task", "tag": [99.5]},
        {"kind": "final", "acc_tag": 99.5},
    ]
    assert [{**record} for record in run.records("task")] == [{"kind": "task", "tag": [99.5]}]
    assert run.final() == {"kind": "final", "acc_tag": 99.5}


def test_what_a_task_ended_with_is_forced_to_the_disk(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", forced.append)
    run.append({"kind": "epoch"})
    assert len(forced) == 0
    run.append({"kind": "task"})
    run.append({"kind": "final"})
    assert len(forced) == 2
    run.metrics_bytes()
    assert len(forced) == 3


def test_a_torn_last_line_is_ignored_and_cut_before_the_next_record(run: RunFolder) -> None:
    metrics = run.path / "metrics.jsonl"
    run.append({"kind": "epoch", "epoch": 1})
    whole = metrics.read_bytes()
    for torn in (b'{"kind": "epo', b'{"kind": "epoch", "epoch": 2}'):
        metrics.write_bytes(whole + torn)
        assert RunFolder.open(run.path).records() == [{"kind": "epoch", "epoch": 1}]
        assert metrics.read_bytes() == whole + torn
        RunFolder.prepare(run.path, document()).append({"kind": "epoch", "epoch": 2})
        assert [record["epoch"] for record in run.records()] == [1, 2]


@pytest.mark.parametrize("line", [b'{"kind": "epo', b"", b"7", b"{}", b"\xff"])
def test_a_damaged_line_in_the_middle_is_named(run: RunFolder, line: bytes) -> None:
    (run.path / "metrics.jsonl").write_bytes(b'{"kind": "task"}\n' + line + b'\n{"kind": "task"}\n')
    with pytest.raises(GcabError, match=r"line 2 of .*metrics.jsonl is damaged"):
        run.records("task")


def test_metrics_go_back_to_where_the_checkpoint_was(run: RunFolder) -> None:
    assert run.metrics_bytes() == 0
    run.append({"kind": "epoch", "epoch": 1})
    size = run.metrics_bytes()
    run.append({"kind": "epoch", "epoch": 2})
    run.truncate_metrics(size)
    assert run.metrics_bytes() == size
    assert [record["epoch"] for record in run.records()] == [1]
    with pytest.raises(GcabError, match=f"has {size} bytes, but the checkpoint was saved when it had {size + 1}"):
        run.truncate_metrics(size + 1)
    assert run.metrics_bytes() == size
    run.truncate_metrics(0)
    assert run.records() == []


def test_arrays_come_back_as_they_were(run: RunFolder) -> None:
    arrays = {"labels": np.array([3, 1]), "logits": np.array([[0.5, -1.0]], dtype=np.float16), "none": np.zeros((0, 2))}
    run.save_arrays("task-02", **arrays)
    run.save_arrays("task-01", labels=np.array([1]))
    run.save_arrays("embedding-01", labels=np.array([1]))
    back = run.load_arrays("task-02")
    assert back is not None
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    assert run.arrays_names("task-") == ["task-01", "task-02"]
    assert run.arrays_names() == ["embedding-01", "task-01", "task-02"]
    assert run.load_arrays("task-03") is None
    with pytest.raises(TypeError, match="only pickle"):
        run.save_arrays("task-03", objects=np.array([{}]))


def test_an_embedding_that_compensation_does_not_change_is_stored_once(run: RunFolder) -> None:
    raw = np.arange(6.0).reshape(2, 3)
    for task, compensated in ((1, raw.copy()), (2, raw + 1)):
        run.save_embedding(task, {"labels": np.array([0, 1]), "raw": raw, "compensated": compensated})
        back, stored = run.embedding(task), run.load_arrays(f"embedding-{task:02d}")
        assert back is not None
        assert stored is not None
        assert set(back) == {"labels", "raw", "compensated"}
        np.testing.assert_array_equal(back["compensated"], compensated)
        assert ("compensated" in stored) == (task == 2)
    assert run.embedding(3) is None


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_damaged_arrays_are_one_sentence(run: RunFolder, damage: str) -> None:
    run.save_arrays("task-01", labels=np.arange(5000))
    path = run.path / "predictions" / "task-01.npz"
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]
    path.write_bytes({"cut": data[:100], "flip": flipped, "empty": b""}[damage])
    with pytest.raises(GcabError, match=r"task-01\.npz is damaged"):
        run.load_arrays("task-01")


def make_runs(root: Path) -> None:
    for method, seed in (("gcab", 10), ("gcab", 2), ("er", 1)):
        RunFolder.prepare(root / "digits-5" / method / f"{seed}-ab", document(method=method, seed=seed))
    # Nothing inside a run or hidden is a run of its own.
    RunFolder.prepare(root / "digits-5" / "er" / "1-ab" / "model" / "inner", document())
    RunFolder.prepare(root / ".hidden" / "1-ab", document())
    (root / "config.json").write_text("{}")


def test_runs_are_found_below_a_folder_once_and_in_the_order_of_a_table(tmp_path: Path) -> None:
    make_runs(tmp_path)
    found = find_runs([tmp_path, tmp_path / "digits-5" / "er" / "1-ab", tmp_path / "digits-5"])
    assert [run.name for run in found] == ["er seed 1", "gcab seed 2", "gcab seed 10"]
    assert [run.path.name for run in find_runs([tmp_path / "digits-5" / "gcab" / "2-ab"])] == ["2-ab"]


def test_the_order_of_runs_does_not_depend_on_what_their_folders_are_called(tmp_path: Path) -> None:
    for place, names in (("here", "ab"), ("there", "ba")):
        for name, epochs in zip(names, (1, 2), strict=True):
            RunFolder.prepare(tmp_path / place / name, document(training={"epochs": epochs}))
    here, there = ([run.config for run in find_runs([tmp_path / place])] for place in ("here", "there"))
    assert here == there


def test_where_there_is_no_run_the_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(GcabError, match=r"there is no run in .*empty"):
        find_runs([tmp_path / "empty"])
    with pytest.raises(GcabError, match=r"there is no run folder .*missing"):
        find_runs([tmp_path / "missing"])
    with pytest.raises(GcabError, match=r"there is no run folder .*missing"):
        RunFolder.open(tmp_path / "missing")
    with pytest.raises(GcabError, match=r"empty is not a run folder: it has no config\.json"):
        RunFolder.open(tmp_path / "empty")


def test_a_parent_of_runs_names_the_nearest(tmp_path: Path) -> None:
    make_runs(tmp_path)
    with pytest.raises(GcabError) as caught:
        RunFolder.open(tmp_path / "digits-5" / "gcab")
    expected = " or ".join(str(tmp_path / "digits-5" / "gcab" / name) for name in ("10-ab", "2-ab"))
    assert str(caught.value) == f"{tmp_path / 'digits-5' / 'gcab'} is not a run folder: did you mean {expected}?"


@pytest.mark.parametrize(
    ("recorded", "corrected", "shown"),
    [
        ("1" * 40, None, "1111111"),
        ("1" * 40, "2" * 40, "2222222 (recorded: 1111111)"),
        (None, "2" * 40, "2222222 (recorded: none)"),
        (None, None, None),
    ],
)
def test_a_corrected_commit_is_shown_beside_the_recorded_one(
    recorded: str | None, corrected: str | None, shown: str | None, tmp_path: Path
) -> None:
    correction = {"commit_corrected": corrected} if corrected else {}
    assert RunFolder(tmp_path, {**document(), "commit": recorded, **correction}).commit == shown


def test_a_run_without_its_model_says_how_to_come_by_one(run: RunFolder) -> None:
    with pytest.raises(GcabError, match=r"first task has not ended: the command .* continues it \(gcab train\)\.$"):
        run.require_model()
    run.append({"kind": "task", "task": 1})
    with pytest.raises(GcabError, match=r"only the log of .*/run is here.* or train it again \(gcab train\)\.$"):
        run.require_model()
    run.document["command"] = ""  # as from Python
    with pytest.raises(GcabError, match=r"or train it again\.$"):
        run.require_model()
    interrupted = run.path / ".model.old"  # by a save that was killed between its two renames
    interrupted.mkdir()
    (interrupted / "model.json").touch()
    run.require_model()
    interrupted.rename(run.model)
    run.require_model()


def test_reading_a_run_does_not_import_torch() -> None:
    code = "import sys, gcab.runs.folder; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_published_run_has_its_log_compressed(run: RunFolder) -> None:
    records = [{"kind": "epoch", "epoch": 1}, {"kind": "final", "acc_tag": 99.5}]
    for record in records:
        run.append(record)
    log, plain, packed = run.log(), run.path / "metrics.jsonl", run.path / "metrics.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert run.metrics == plain, "which may have grown"
    plain.unlink()
    published = RunFolder.open(run.path)
    assert (published.records(), published.log(), published.metrics) == (records, log, packed)
    with pytest.raises(GcabError, match="is a published run, to which nothing is added"):
        RunFolder.prepare(run.path, document())
    assert not plain.exists()
    for damaged in (packed.read_bytes()[:-9], b"no archive", packed.read_bytes()[:20] + b"\xff" * 9, b"\x1f\x8b"):
        packed.write_bytes(damaged)
        with pytest.raises(GcabError, match=r"metrics.jsonl.gz is damaged: restore the file"):
            published.records()


def test_an_embedding_comes_back_row_by_row_and_its_constant_columns_take_no_space(run: RunFolder) -> None:
    points = np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)
    points[:, ::2] = points[0, ::2]  # behind closed gates
    labels = np.arange(300)
    run.save_embedding(1, {"labels": labels, "raw": points, "compensated": points})
    found = run.embedding(1)
    assert found is not None
    assert all(array.flags.c_contiguous for array in found.values())
    assert all(np.array_equal(found[kind], points) for kind in ("raw", "compensated"))
    assert np.array_equal(found["labels"], labels)
    assert (run.path / "predictions" / "embedding-01.npz").stat().st_size < 0.55 * points.nbytes
    assert run.embedding(2) is None


def test_brackets_without_end_are_damage(run: RunFolder) -> None:
    deep = "[" * 200_000
    run.metrics.write_text(f"{deep}\n")
    with pytest.raises(GcabError, match=r"line 1 of .*metrics\.jsonl is damaged"):
        run.records()
    (run.path / "config.json").write_text(deep)
    with pytest.raises(GcabError, match=r"config\.json is damaged \(it is nested too deeply\)"):
        RunFolder.open(run.path)
