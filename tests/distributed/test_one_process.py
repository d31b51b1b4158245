"""One process has nothing to share: everything is as if there were no ranks."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gcab.errors import GcabError
from gcab.parallel import ranks
from gcab.parallel.devices import choose_device
from gcab.parallel.launch import Launch, one_voice
from gcab.training import recorded
from gcab.training.distributed import process_group

CPU = torch.device("cpu")
STARTED = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


def test_the_environment_says_which_process_this_is() -> None:
    assert Launch.from_environment(STARTED) == Launch(rank=5, world=8, local_rank=1, local_world=4)
    assert Launch.from_environment({}) == Launch(rank=0, world=1, local_rank=0, local_world=1)
    assert Launch.from_environment({"RANK": "1"}) == Launch(), "a number alone was not set by a launcher"


def test_alone_everything_is_done_here(tmp_path: Path) -> None:
    with process_group(Launch(), CPU), ranks.one_goes_ahead(True):
        (tmp_path / "done").touch()
    assert (ranks.rank(), ranks.world()) == (0, 1)
    batch = torch.arange(6.0)
    assert torch.equal(ranks.rows(batch), batch)
    norm = torch.tensor(0.1, requires_grad=True)
    assert ranks.whole_norm(norm) is norm
    assert ranks.mean(batch) is batch
    assert ranks.from_first(lambda: "here") == "here"
    parts = ranks.shared_work(lambda part: part + 1, batch.split(4))
    assert torch.equal(torch.cat(parts), batch + 1)
    torch.manual_seed(1)
    expected = torch.rand(3, 2)
    torch.manual_seed(1)
    assert torch.equal(ranks.uniform(3, 2, device=CPU), expected)


def test_the_first_process_tells_at_once_and_the_others_wait() -> None:
    began = time.monotonic()
    with pytest.raises(GcabError, match="broken"), one_voice(Launch(), patience=1800):
        raise GcabError("broken")
    assert time.monotonic() - began < 900
    with pytest.raises(GcabError, match="broken"), one_voice(Launch(rank=1, world=2), patience=0.2):
        raise GcabError("broken")
    assert time.monotonic() - began >= 0.2


def test_of_an_interruption_the_first_process_alone_tells() -> None:
    with pytest.raises(KeyboardInterrupt), one_voice(Launch(), patience=1800):
        raise KeyboardInterrupt
    with pytest.raises(SystemExit) as ended, one_voice(Launch(rank=1, world=2), patience=1800):
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_processes_take_one_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    third = Launch(rank=6, world=8, local_rank=2, local_world=4)
    assert choose_device("auto", third) == torch.device("cuda:2")
    assert choose_device("cuda", third) == torch.device("cuda:2")
    assert choose_device("cpu", third) == CPU
    assert choose_device("cuda:1", Launch()) == torch.device("cuda:1")
    with pytest.raises(GcabError, match=r"'cuda:1' cannot serve 8 processes"):
        choose_device("cuda:1", third)
    with pytest.raises(GcabError, match=r"5 processes were started on a machine with 4 GPUs"):
        choose_device("auto", Launch(rank=2, world=5, local_rank=2, local_world=5))


def test_steps_of_several_processes_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "world", lambda: 2)
    monkeypatch.setattr(recorded, "PlainSteps", lambda step, feed: (step, feed))
    step: Any = "step"
    feed: Any = SimpleNamespace(device=torch.device("cuda"), resident=True)
    said: list[str] = []
    steps: Any = recorded.make_steps(step, feed, said.append)
    assert steps == (step, feed)
    assert said == ["several processes share each batch: their steps run one by one"]
