"""Whatever happens to the process or the disk, the newest intact checkpoint comes back bit for bit."""

import errno
import json
import math
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gcab.errors import GcabError
from gcab.runs.checkpoint import CheckpointStore, flatten, unflatten

KILLED_SAVES = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from gcab.runs.checkpoint import CheckpointStore

folder = Path(sys.argv[1])
chance = random.Random(3)
for round in range(10):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        store = CheckpointStore(folder)
        latest, _ = store.load_latest()
        step = latest.position["step"] if latest else 0
        while True:
            step += 1
            store.save({"step": step}, {"full": torch.full((200_000,), step), "step": step})
            os.write(writer, step.to_bytes(4, "big"))
    os.close(writer)
    said = os.read(reader, 4)
    time.sleep(chance.uniform(0, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reader, 4):
        said = more
    os.close(reader)
    latest, warnings = CheckpointStore(folder).load_latest()
    step = latest.position["step"]
    assert step >= int.from_bytes(said, "big"), (step, said)
    assert latest.state["step"] == step and bool((latest.state["full"] == step).all())
    assert not any("damaged" in warning for warning in warnings), warnings
print("killed", round + 1, "times at step", step)
"""


def same(left: Any, right: Any) -> bool:
    """Compare nested states to the last bit and type."""
    if isinstance(left, Tensor):
        if not isinstance(right, Tensor) or left.dtype != right.dtype or left.shape != right.shape:
            return False
        pair = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (left, right)]
        return torch.equal(pair[0], pair[1])
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and [(type(key), key) for key in left] == [(type(key), key) for key in right]
            and all(same(left[key], right[key]) for key in left)
        )
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return type(left) is type(right) and left == right and repr(left) == repr(right)


def stored(tmp_path: Path, steps: int) -> CheckpointStore:
    store = CheckpointStore(tmp_path / "checkpoint")
    for step in range(1, steps + 1):
        store.save({"step": step}, {"value": torch.full((50,), float(step))})
    return store


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def loaded_step(store: CheckpointStore) -> int:
    latest, _ = store.load_latest()
    assert latest is not None
    assert same(latest.state["value"], torch.full((50,), float(latest.position["step"])))
    return int(latest.position["step"])


def tensors() -> st.SearchStrategy[Tensor]:
    dtypes = st.sampled_from([torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float16, torch.float32])
    shapes = st.lists(st.integers(0, 3), max_size=3)
    return st.builds(lambda dtype, shape: torch.arange(math.prod(shape)).reshape(shape).to(dtype), dtypes, shapes)


def nested() -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    keys = st.integers(0, 3) | st.sampled_from(["0", "1", "a", "a/b", "b", "", "tensor", "__metadata__", "é"])
    return st.recursive(
        scalars | tensors(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=4)
        ),
        max_leaves=12,
    )


@pytest.mark.repeats
@settings(max_examples=150)
@given(nested())
@example([math.inf, -math.inf, math.nan, -0.0, (1, (True, None))])
@example({"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}, "a/b'": torch.tensor(2)})
@example({0: torch.ones(1), "0": torch.zeros(1), "__metadata__": torch.ones(2), "tensor": {"tensor": "0"}})
@example(torch.ones(1))
def test_any_nested_state_survives_being_flattened(state: Any) -> None:
    flat, structure = flatten(state)
    assert same(state, unflatten(flat, json.loads(json.dumps(structure, allow_nan=False))))


@settings(max_examples=25)
@given(state=nested())
def test_any_nested_state_survives_the_disk(tmp_path_factory: pytest.TempPathFactory, state: Any) -> None:
    folder = tmp_path_factory.mktemp("store")
    CheckpointStore(folder).save({}, {"state": state})
    latest, warnings = CheckpointStore(folder).load_latest()
    assert latest is not None
    assert same({"state": state}, latest.state)
    assert warnings == []


def test_names_tell_where_a_tensor_belongs() -> None:
    flat, _ = flatten({"method": {"encoder.weight": torch.ones(1)}, "optimiser": {"state": {0: [torch.ones(2)]}}})
    assert list(flat) == ["method/encoder.weight", "optimiser/state/0/0"]


def test_odd_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {
        "transposed": base.t(),
        "expanded": torch.ones(1).expand(5),
        "slice": base[1, ::2],
        "shared": base,
        "shared again": base,
        "scalar": torch.tensor(3, dtype=torch.int64),
        "empty": torch.empty(0, 7, dtype=torch.bfloat16),
        "float64": torch.tensor([math.nan, -0.0, math.inf], dtype=torch.float64),
        "parameter": nn.Parameter(torch.ones(2)),
        "random": torch.Generator().manual_seed(5).get_state(),
    }
    store = CheckpointStore(tmp_path)
    store.save({"task": 2, "place": ["a", None]}, state)
    latest, _ = store.load_latest()
    assert latest is not None
    assert latest.position == {"task": 2, "place": ["a", None]}
    assert same(state, latest.state)
    assert not any(value.requires_grad for value in latest.state.values())
    latest.state["shared"][0] = 99.0
    assert same(latest.state["shared again"], base)


def test_training_continues_exactly_from_a_loaded_module_and_optimiser(tmp_path: Path) -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        return module, torch.optim.AdamW(module.parameters(), lr=0.1, betas=(0.8, 0.99), weight_decay=0.01)

    def train(module: nn.Module, optimiser: torch.optim.Optimizer, seed: int) -> None:
        images = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
        optimiser.zero_grad()
        module(images).square().sum().backward()
        optimiser.step()

    module, optimiser = build()
    train(module, optimiser, 0)
    store = CheckpointStore(tmp_path)
    store.save({"step": 1}, {"method": module.state_dict(), "optimiser": optimiser.state_dict(), "teacher": None})
    latest, _ = store.load_latest()
    assert latest is not None
    assert same(optimiser.state_dict(), latest.state["optimiser"])
    other_module, other_optimiser = build()
    other_module.load_state_dict(latest.state["method"])
    other_optimiser.load_state_dict(latest.state["optimiser"])
    train(module, optimiser, 1)
    train(other_module, other_optimiser, 1)
    assert same(dict(module.state_dict()), dict(other_module.state_dict()))
    assert latest.state["teacher"] is None


@pytest.mark.parametrize("state", [{"a": object()}, {"a": {1.5: 1}}, {"a": {1, 2}}])
def test_what_json_and_safetensors_cannot_hold_is_refused(tmp_path: Path, state: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="a checkpoint"):
        CheckpointStore(tmp_path).save({}, state)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "missing").load_latest() == (None, [])


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    store = stored(tmp_path, 4)
    assert names(store) == [
        "checkpoint-000003.json",
        "checkpoint-000003.safetensors",
        "checkpoint-000004.json",
        "checkpoint-000004.safetensors",
    ]
    assert loaded_step(store) == 4


@pytest.mark.parametrize("where", [0, 9, -1])
@pytest.mark.parametrize("file", ["checkpoint-000002.safetensors", "checkpoint-000002.json"])
def test_a_flipped_bit_is_noticed_and_the_one_before_is_used(tmp_path: Path, file: str, where: int) -> None:
    store = stored(tmp_path, 2)
    path = store.folder / file
    flip(path, path.read_bytes().index(b'"step": 2') + 8 if file.endswith("json") else where)
    assert loaded_step(store) == 1
    _, [warning] = store.load_latest()
    assert "checkpoint-000002.json is damaged (" in warning


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("checkpoint-000002.safetensors", b"cut", "the tensors have 3 bytes instead of"),
        ("checkpoint-000002.safetensors", None, "checkpoint-000002.safetensors is missing"),
        ("checkpoint-000002.json", b"", "the manifest is not readable JSON"),
        ("checkpoint-000002.json", b"\xff\xfe", "the manifest is not readable JSON"),
        ("checkpoint-000002.json", b"{}", "the manifest lacks an entry"),
        ("checkpoint-000002.json", b"[1]", "the manifest lacks an entry"),
    ],
)
def test_the_warning_says_what_is_damaged(tmp_path: Path, file: str, content: bytes | None, reason: str) -> None:
    store = stored(tmp_path, 2)
    if content is None:
        (store.folder / file).unlink()
    else:
        (store.folder / file).write_bytes(content)
    latest, [warning] = store.load_latest()
    assert latest is not None
    assert latest.position == {"step": 1}
    assert reason in warning


def test_a_deleted_manifest_counts_as_an_interrupted_save(tmp_path: Path) -> None:
    store = stored(tmp_path, 2)
    (store.folder / "checkpoint-000002.json").unlink()
    assert loaded_step(store) == 1
    assert "checkpoint-000002.safetensors has no manifest" in store.load_latest()[1][0]
    (store.folder / "checkpoint-000001.json").unlink()
    latest, warnings = store.load_latest()
    assert latest is None
    assert len(warnings) == 2


def test_when_all_are_damaged_the_error_names_them(tmp_path: Path) -> None:
    store = stored(tmp_path, 2)
    flip(store.folder / "checkpoint-000001.safetensors", -1)
    (store.folder / "checkpoint-000002.json").write_bytes(b"{")
    with pytest.raises(GcabError, match=r"000002\.json is damaged .*000001\.json is damaged .*delete that folder"):
        store.load_latest()


def test_a_format_of_the_future_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr("gcab.runs.checkpoint.FORMAT", 2)
        store.save({"step": 2}, {})
    assert loaded_step(store) == 1
    assert "format 2, this gcab reads format 1" in store.load_latest()[1][0]


def test_a_damaged_checkpoint_does_not_push_out_an_intact_one(tmp_path: Path) -> None:
    store = stored(tmp_path, 2)
    flip(store.folder / "checkpoint-000002.safetensors", -1)
    assert loaded_step(store) == 1
    store.save({"step": 2}, {"value": torch.full((50,), 2.0)})
    assert [name for name in names(store) if name.endswith(".json")] == [
        "checkpoint-000001.json",
        "checkpoint-000003.json",
    ]


def test_a_deletion_cut_short_leaves_no_manifest_without_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored(tmp_path, 2)
    real, calls = Path.unlink, 0

    def unlink(path: Path, missing_ok: bool = False) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        real(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(GcabError, match="no permission"):
        store.save({"step": 3}, {"value": torch.full((50,), 3.0)})
    assert [name for name in names(store) if "000001" in name] == ["checkpoint-000001.safetensors"]
    assert loaded_step(store) == 3


def test_leftovers_of_killed_saves_are_cleaned_up(tmp_path: Path) -> None:
    store = stored(tmp_path, 2)
    (store.folder / ".checkpoint-000003.safetensors.0a.tmp").touch()
    (store.folder / "checkpoint-000003.safetensors").touch()
    (store.folder / "checkpoint-notes.json").touch()
    store.save({"step": 3}, {"value": torch.full((50,), 3.0)})
    assert names(store) == [
        "checkpoint-000002.json",
        "checkpoint-000002.safetensors",
        "checkpoint-000004.json",
        "checkpoint-000004.safetensors",
        "checkpoint-notes.json",
    ]


@pytest.mark.parametrize("allowed", [0, 1, 2, 3])
def test_a_full_disk_at_any_moment_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    store = stored(tmp_path, 2)
    real, calls = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > allowed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(GcabError, match=r"disk full while saving .*checkpoint-000003"):
            store.save({"step": 3}, {"value": torch.full((50,), 3.0)})
    # The fourth call only makes the finished manifest's name safe: the new checkpoint is already complete.
    assert loaded_step(store) == (3 if allowed == 3 else 2)
    store.save({"step": 9}, {"value": torch.full((50,), 9.0)})
    assert loaded_step(store) == 9


def test_a_real_refusal_in_the_middle_of_the_tensors(tmp_path: Path) -> None:
    store = stored(tmp_path, 2)
    before = names(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(GcabError, match=r"cannot save .*000003\.safetensors \(File too large\)"):
            store.save({"step": 3}, {"value": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(store) == before
    assert loaded_step(store) == 2


def test_a_process_killed_at_any_moment_leaves_what_it_had_saved(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", KILLED_SAVES, str(tmp_path / "checkpoint")], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("killed 10 times at step ")


def test_a_state_saved_beside_is_the_state_at_that_moment(tmp_path: Path) -> None:
    store, value = CheckpointStore(tmp_path), torch.zeros(1_000_000)
    for step in range(4):
        value.fill_(step)
        store.save_in_background({"step": step}, {"value": value})
        value.fill_(-1.0)  # as training goes on while it is written
    checkpoint, warnings = store.load_latest()
    assert checkpoint is not None
    assert checkpoint.position == {"step": 3}
    assert torch.equal(checkpoint.state["value"], torch.full((1_000_000,), 3.0))
    assert not warnings


def test_a_failure_beside_shows_at_the_next_save_or_wait(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    store = CheckpointStore(file / "below")  # no folder can be made there
    store.save_in_background({"step": 1}, {"value": torch.zeros(3)})
    with pytest.raises(GcabError, match="below"):
        store.wait()
    store.wait()
    store.save_in_background({"step": 2}, {"value": torch.zeros(3)})
    with pytest.raises(GcabError, match="below"):
        store.save({"step": 3}, {"value": torch.zeros(3)})
