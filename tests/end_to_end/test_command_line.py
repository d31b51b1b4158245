"""The program from outside: every verb, as a person would call it."""

import io
import re
import shutil
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.photos import make_photos
from helpers.processes import environment, gcab, records, without_seconds
from helpers.settings import FEW_TOKENS, TINY_GCAB, set_flags, train_flags

from gcab.cli.main import main
from gcab.version import VERSION

SHORT = {"training.epochs": 2, "training.batch_size": 64}
METHODS = ("gcab", "finetune", "joint", "er")

pytestmark = pytest.mark.usefixtures("rough_embedding")


@dataclass(frozen=True)
class Trained:
    """The folder in which one small run of every method was trained, and what each command printed."""

    folder: Path
    printed: dict[str, str]

    def run(self, method: str) -> Path:
        [run] = (self.folder / "runs" / "digits" / "5" / method).glob("1-*")
        return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The first of them by a program of its own, which shows what the others need not show again."""
    folder = tmp_path_factory.mktemp("trained")
    done = gcab("train", "digits/5", *train_flags(METHODS[0], SHORT), folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    printed = {METHODS[0]: done.stdout}
    for method in METHODS[1:]:
        with chdir(folder), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
            assert main(["train", "digits/5", *train_flags(method, SHORT)]) == 0
        assert errors.getvalue() == ""
        printed[method] = out.getvalue()
    return Trained(folder, printed)


@pytest.fixture
def inside(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """The trained folder as the current one, for commands called within this process."""
    monkeypatch.chdir(trained.folder)
    return trained


def printed_by(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a command that succeeds prints."""
    assert main([str(argument) for argument in arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_help_names_every_command_and_an_example(tmp_path: Path) -> None:
    done = gcab("--help", folder=tmp_path)
    assert done.returncode == 0
    for expected in ("demo", "train", "evaluate", "report", "compare", "list", "gcab train cifar100/10 --data DIR"):
        assert expected in done.stdout


def test_help_of_training_shows_the_settings_of_the_chosen_method(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, shown, hidden in (
        ([], "--options.drift", "--options.buffer"),
        (["--method", "er"], "--options.buffer", "--options.drift"),
        (["--method=er"], "--options.buffer", "--options.drift"),
    ):
        with pytest.raises(SystemExit) as leaving:
            main(["train", *arguments, "--help"])
        assert leaving.value.code == 0
        printed = capsys.readouterr().out
        assert shown in printed
        assert hidden not in printed
        assert "--training.epochs" in printed


def test_version(tmp_path: Path) -> None:
    assert gcab("--version", folder=tmp_path).stdout == f"gcab {VERSION}\n"


def test_commands_that_need_no_torch_do_not_wait_for_it() -> None:
    program = (
        "import sys; from gcab.cli.main import make_parser; make_parser(['report', 'x']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(f" {method} " in printed_by(capsys, "list", "methods") for method in METHODS)
    scenarios = printed_by(capsys, "list", "scenarios")
    assert "digits/5" in scenarios
    assert "folder/N" in scenarios
    assert "tiny-imagenet" in printed_by(capsys, "list", "datasets")


@pytest.mark.repeats
@pytest.mark.parametrize("method", METHODS)
def test_training_prints_and_stores_the_same(trained: Trained, method: str) -> None:
    run, printed = trained.run(method), trained.printed[method]
    [final] = records(run, "final")
    assert f"ACC_TAG {final['acc_tag']:.2f} %  ACC_TAW {final['acc_taw']:.2f} %" in printed
    assert printed.endswith(f"Run: {run.relative_to(trained.folder)}\n")
    assert [record["task"] for record in records(run, "task")] == ([5] if method == "joint" else [1, 2, 3, 4, 5])
    learned = re.findall(r"^\w+  task (\d) of 5 learned: .* over (\d+) classes, .*\)$", printed, re.MULTILINE)
    expected = [("5", "10")] if method == "joint" else [(str(task), str(2 * task)) for task in range(1, 6)]
    assert learned == expected
    last = records(run, "task")[-1]
    assert (last["bytes"]["images"] > 0) == (method == "er")


def test_the_same_command_shows_a_finished_run_without_training(
    inside: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    run = inside.run("gcab")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "lock"}
    printed = printed_by(capsys, "train", "digits/5", *train_flags("gcab", SHORT))
    assert "of 5 learned" not in printed
    assert printed.splitlines()[-2:] == inside.printed["gcab"].splitlines()[-2:]
    assert {path: path.read_bytes() for path in before} == before


def test_flags_and_set_mean_the_same_run(inside: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    sets = set_flags({**TINY_GCAB, **FEW_TOKENS, **SHORT})
    size = (inside.run("gcab") / "metrics.jsonl").stat().st_size
    printed = printed_by(capsys, "train", "digits/5", *sets)
    assert printed.splitlines()[-1] == inside.printed["gcab"].splitlines()[-1]
    assert (inside.run("gcab") / "metrics.jsonl").stat().st_size == size


def test_evaluate_reproduces_what_the_run_recorded(inside: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    for method in METHODS:
        [final] = records(inside.run(method), "final")
        printed = printed_by(capsys, "evaluate", inside.run(method))
        for name in ("acc_tag", "acc_taw", "task_identification"):
            assert f"{name}: {final[name]:.2f} % (recorded {final[name]:.2f} %)" in printed


def test_evaluate_without_a_record(inside: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(inside.run("finetune"), run)
    (run / "metrics.jsonl").write_bytes(b"")
    assert "(recorded nothing)" in printed_by(capsys, "evaluate", run)


def test_report_of_one_run_is_written_into_it(inside: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    run = inside.run("gcab").relative_to(inside.folder)
    printed = printed_by(capsys, "report", run)
    assert printed.startswith(f"{run / 'report.html'}\n")
    page = (run / "report.html").read_text()
    [final] = records(run, "final")
    assert f"{final['acc_tag']:.1f}" in page
    assert "http" not in re.sub(
        r"http://www\.w3\.org\S+|https://\S*matplotlib\S*|http://purl\S+|http://creat\S+", "", page
    )
    assert list((run / "figures").glob("*.png"))
    assert list((run / "figures").glob("*.svg"))


@pytest.mark.repeats
def test_report_of_several_runs(inside: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "both.html"
    printed = printed_by(
        capsys, "report", inside.run("gcab"), inside.run("finetune"), inside.run("joint"), "--out", page
    )
    assert printed.startswith(f"{page}\n")
    text = page.read_text()
    assert all(method in text for method in ("gcab", "finetune", "joint"))
    assert (tmp_path / "both-figures").is_dir()


@pytest.mark.repeats
def test_seeds_lie_side_by_side_and_are_compared(inside: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    printed_by(capsys, "train", "digits/5", "--seed", "2", *train_flags("finetune", SHORT))
    first = inside.run("finetune")
    second = first.with_name(first.name.replace("1-", "2-", 1))
    assert without_seconds(records(first, "epoch")) != without_seconds(records(second, "epoch"))
    table = printed_by(capsys, "compare", "runs/digits/5/finetune", inside.run("gcab"))
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if "│" in line]
    [counts] = [row for row in cells if row[0] == "Seeds"]
    assert sorted(counts[1:]) == ["1", "2"]
    mean = sum(records(run, "final")[0]["acc_tag"] for run in (first, second)) / 2
    [accuracies] = [row for row in cells if row[0] == "ACC_TAG"]
    assert accuracies[1 + counts[1:].index("2")].startswith(f"{mean:.1f} ±")


def test_the_same_seed_in_another_place_gives_the_same_model(trained: Trained, tmp_path: Path) -> None:
    gcab("train", "digits/5", *train_flags("finetune", SHORT), "--run", "again", folder=tmp_path)
    first, again = trained.run("finetune"), tmp_path / "again"
    assert without_seconds(records(first)) == without_seconds(records(again))
    weights = [(run / "model" / "weights.safetensors").read_bytes() for run in (first, again)]
    assert weights[0] == weights[1]


@pytest.mark.repeats
def test_dry_run_shows_settings_tasks_and_cost_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = printed_by(capsys, "train", "digits/5", "--training.epochs", "7", "--dry-run")
    assert "training.epochs = 7\n" in printed
    assert re.search(r"^task 1: 2 classes, \d+ training images: 0, 1$", printed, re.MULTILINE)
    assert re.search(r"^after the last task: \d\.\d\d M parameters, .* in the encoder\)$", printed, re.MULTILINE)
    assert re.search(r"^training: .* TFLOP.* at least \d+ (s|min)$", printed, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.repeats
def test_dry_run_without_data(capsys: pytest.CaptureFixture[str]) -> None:
    printed = printed_by(capsys, "train", "cifar100/10", "--dry-run")
    assert len(re.findall(r"^task \d+: 10 classes: class \d+", printed, re.MULTILINE)) == 10
    assert "task 1: 10 classes: class 87, class 0, class 52," in printed  # the authors' order
    assert "give --data DIR" in printed


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("paper", ["encoder.kind = vit", "training.optimiser = adam", "options.distance = cosine"]),
        ("official", ["encoder.kind = convit", "options.distance = l2", "options.statistics = False"]),
        ("extended", ["options.distance = rms", "options.statistics = True"]),
    ],
)
def test_profiles(profile: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed_by(capsys, "train", "digits/5", "--profile", profile, "--dry-run").splitlines()
    assert set(expected) <= set(lines)
    assert f"profile = {profile}" in lines


def test_own_photos_from_dry_run_to_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    photos = make_photos(tmp_path / "photos", ["ash", "birch", "cedar", "elm"], 10, 20, 24)
    command = [
        "train",
        "folder/2",
        "--data",
        str(photos),
        *train_flags("gcab", SHORT),
        "--scenario.image_size",
        "16",
    ]
    assert "training images: " in printed_by(capsys, *command, "--dry-run")
    printed_by(capsys, *command, "--run", "trees")
    run = tmp_path / "trees"
    [final] = records(run, "final")
    assert [record["classes"] for record in records(run, "task")] == [[2], [2, 2]]
    assert f"acc_tag: {final['acc_tag']:.2f} %" in printed_by(capsys, "evaluate", run, "--data", photos)
    assert f"{final['acc_tag']:.1f}" in printed_by(capsys, "compare", run)


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = f"{sys.executable} -m gcab list datasets | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment())
    assert done.stderr == ""
    assert done.returncode in (0, 1)
