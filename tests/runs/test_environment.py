"""A number says what it was measured with."""

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gcab.runs.environment import _commit, device_name, environment, hardware


def test_the_environment_names_its_versions() -> None:
    versions = environment()["versions"]
    assert versions["torch"] == torch.__version__
    assert versions["numpy"] == np.__version__
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(versions) == {"gcab", "torch", "python", "numpy"}
    assert environment()["platform"] == f"{platform.system()} {platform.machine()}"


def test_the_commit_is_that_of_the_package_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True, text=True).stdout

    tmp_path = tmp_path.resolve()
    git("init", "--quiet")
    assert _commit(tmp_path) is None
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "--message=first")
    assert _commit(tmp_path) == git("rev-parse", "HEAD").strip()
    (tmp_path / "site-packages").mkdir()
    assert _commit(tmp_path / "site-packages") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _commit(tmp_path) is None


def test_devices_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert device_name(torch.device("cpu")) == "CPU, 1 thread"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert device_name(torch.device("cpu")) == "CPU, 4 threads"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card {device.index}")
    assert device_name(torch.device("cuda", 1)) == "card 1"
    assert device_name(torch.device("mps")) == "MPS"


def test_of_a_gpu_the_libraries_and_the_driver_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert hardware(torch.device("cpu")) == {"device": "CPU, 1 thread"}
    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware(torch.device("cuda")) == {"device": "cuda", "cuda": "12.8", "driver": None}
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\nprint('570.1.2')\nprint('570.1.2')\n")
    tool.chmod(0o755)
    assert hardware(torch.device("cuda"), 8) == {"device": "8 x cuda", "cuda": "12.8", "driver": "570.1.2"}
