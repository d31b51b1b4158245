"""The same runs on every engine, one of whose workers is killed: it is tried again, and nothing differs."""

import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.commands import refusal
from helpers.processes import LIMIT, records, unmeasured
from helpers.recipes import SHORT, jobs_of, made
from helpers.runs import same_results
from helpers.settings import FEW_FEATURES, set_flags

from gcab.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("small_eyes", "forked_interpreters")

EPOCHS = 8  # so that the worker is still in its second task when it is killed
# A t-SNE that nobody looks at takes the fewest steps.
HASTY = """\
from functools import partial
from sklearn import manifold
manifold.TSNE = partial(manifold.TSNE, max_iter=250, min_grad_norm=1e9)
from gcab.cli.main import main
raise SystemExit(main())
"""
# A job that was lost may have left its answer on a disk that is slow to tell: submitit waits 15 seconds for it.
IMPATIENT = f"""\
import submitit
submitit.Job._results_timeout_s = 1
{HASTY}"""
ENGINES = {"processes": (), "ray": ("--on", "ray"), "submitit": ("--on", "slurm", "--slurm", "cluster=local")}


def installed(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install 'gcab[ray,slurm]'")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, small_eyes: None) -> list[RunFolder]:
    """The runs, made here one after the other."""
    del small_eyes
    return made(jobs_of("embedding", tmp_path_factory.mktemp("alone"), "digits/2", epochs=EPOCHS))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`gcab figure embedding` with two runs at a time, given in the folder of the test; it speaks to said.txt there."""
    # A cluster of the test's own, whatever else runs on this machine, and as fast: Ray's workers are nice to others.
    settings = {"RAY_ADDRESS": "local", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_worker_niceness": "0"}
    started = []

    def program(*arguments: object) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-c",
            IMPATIENT if "slurm" in arguments else HASTY,
            "figure",
            "embedding",
            "--scenario",
            "digits/2",
            "--device",
            "cpu",
        ]
        command += [*map(str, arguments), "--at-once", "2", "--out", "out", *set_flags({**SHORT, **FEW_FEATURES})]
        with (tmp_path / "said.txt").open("w") as said:
            environment = {**unmeasured(), **settings}
            started.append(subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said, env=environment))
        return started[-1]

    yield program
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.repeats
@pytest.mark.parametrize(
    "engine",
    [
        "processes",
        pytest.param("ray", marks=installed("ray")),
        pytest.param("submitit", marks=installed("submitit")),
    ],
)
def test_a_killed_worker_changes_nothing(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], alone: list[RunFolder], engine: str
) -> None:
    jobs = jobs_of("embedding", tmp_path / "runs", "digits/2", epochs=EPOCHS)
    command = start(*ENGINES[engine], "--epochs", EPOCHS)
    wait_until(lambda: command.poll() is not None or bool(records(jobs[0].path, "task")), "a task is learned")
    os.kill(int((jobs[0].path / "lock").read_text()), signal.SIGKILL)
    code, text = command.wait(LIMIT), (tmp_path / "said.txt").read_text()
    assert code == 0, text
    assert "1 of 2: digits/2, without PFR: its" in text
    assert "trying again (2 of 3)" in text
    assert "1 of 2: digits/2, without PFR: ACC_TAG" in text
    assert "2 of 2: digits/2, with PFR: ACC_TAG" in text
    assert (tmp_path / "out" / "embedding.png").exists()
    for run, job in zip(alone, jobs, strict=True):
        same_results(run, RunFolder.open(job.path))


def wait_until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("package", "arguments", "sentence"),
    [
        ("ray", ("--on", "ray"), "--on ray needs Ray, which is not installed: pip install 'gcab[ray]'."),
        (
            "submitit",
            ("--on", "slurm"),
            "--on slurm needs submitit, which is not installed: pip install 'gcab[slurm]'.",
        ),
    ],
)
def test_what_is_not_installed_is_named(
    package: str,
    arguments: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else there(name))
    figure = ("figure", "embedding", "--scenario", "digits/2", "--device", "cpu", "--runs", tmp_path)
    assert refusal(capsys, *figure, *arguments) == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--on", "rey"), "unknown engine 'rey': did you mean 'ray'?"),
        (("--on", "slurm://host"), "unknown engine 'slurm://host': did you mean 'slurm'?"),
        (("--gpu-share", "0.5"), "--gpu-share is for --on ray: leave it out."),
        (("--on", "ray", "--gpu-share", "1.5"), "--gpu-share is 1.5: give a share of a GPU from 0 to 1."),
        (("--slurm", "partition=gpu"), "--slurm is for --on slurm: leave it out."),
        (("--on", "slurm", "--slurm", "gpu"), "--slurm needs KEY=VALUE, such as partition=gpu, not 'gpu'."),
        (("--on", "ray://"), "--on ray:// is no address: give ray://HOST or ray://HOST:PORT."),
        (("--on", "ray://localhost:x"), "--on ray://localhost:x is no address: give ray://HOST or ray://HOST:PORT."),
    ],
)
def test_bad_requests_get_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = ("figure", "embedding", "--scenario", "digits/2", "--device", "cpu", "--runs", tmp_path)
    assert refusal(capsys, *figure, *arguments) == sentence


@installed("ray")
def test_an_address_where_nobody_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = ("figure", "embedding", "--scenario", "digits/2", "--device", "cpu", "--runs", tmp_path)
    said = refusal(capsys, *figure, "--on", "ray://127.0.0.1:9")
    assert said.startswith("no Ray cluster can be reached at ray://127.0.0.1:9 (")


@installed("submitit")
@pytest.mark.skipif(bool(os.environ.get("SLURM_CLUSTER_NAME")), reason="there is a Slurm on this machine")
def test_a_machine_without_slurm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = ("figure", "embedding", "--scenario", "digits/2", "--device", "cpu", "--runs", tmp_path, "--on", "slurm")
    assert refusal(capsys, *figure).startswith("there is no Slurm on this machine (no srun)")
