"""Mistyped commands: one sentence says what was meant, and nothing is written."""

from pathlib import Path

import pytest
from helpers.commands import refusal


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


TRAIN = ["train", "digits/5"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([*TRAIN, "--method", "gcb"], "unknown method 'gcb': did you mean 'gcab'?"),
        (["train", "digit/5"], "unknown scenario 'digit/5': did you mean 'digits/5'?"),
        (["train", "digits"], "unknown scenario 'digits': did you mean 'digits/5'?"),
        (["train", "digits/0"], "unknown scenario 'digits/0': did you mean 'digits/5'?"),
        (["train", "digits/-5"], "unknown scenario 'digits/-5': did you mean 'digits/5'?"),
        ([*TRAIN, "--profile", "offical"], "unknown profile 'offical': did you mean 'official'?"),
        ([*TRAIN, "--training.epoch", "3"], "unknown argument '--training.epoch': did you mean '--training.epochs'?"),
        ([*TRAIN, "--training.epoch=3"], "unknown argument '--training.epoch': did you mean '--training.epochs'?"),
        ([*TRAIN, "--dryrun"], "unknown argument '--dryrun': did you mean '--dry-run'?"),
        ([*TRAIN, "--set", "training.epoch=3"], "unknown setting 'training.epoch': did you mean 'training.epochs'?"),
        ([*TRAIN, "--options.drift", "prf"], "unknown value for options.drift 'prf': did you mean 'pfr'?"),
        ([*TRAIN, "--set", "options.drift=prf"], "unknown value for options.drift 'prf': did you mean 'pfr'?"),
        (["report", "x", "--ot", "y"], "unknown argument '--ot': did you mean '--out'?"),
    ],
)
def test_the_nearest_name_is_offered(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert refusal(capsys, *arguments) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "COMMAND"),
        (["trian"], "'train'"),
        (["train"], "SCENARIO"),
        (["train", "nonsense"], "cifar100/10, cifar100/20"),
        ([*TRAIN, "extra"], "there is no use for the argument 'extra' (see 'gcab train --help')."),
        ([*TRAIN, "--method"], "argument --method: expected one argument (see 'gcab train --help')."),
        ([*TRAIN, "--training.epochs"], "expected one argument"),
        ([*TRAIN, "--training.epochs", "three"], "training.epochs cannot be 'three': give a whole number."),
        ([*TRAIN, "--training.epochs", "1.5"], "training.epochs cannot be '1.5': give a whole number."),
        ([*TRAIN, "--training.epochs", "0"], "training.epochs is 0: give a number greater than 0."),
        ([*TRAIN, "--training.warmup_epochs", "-3"], "training.warmup_epochs is -3: give 0 or more."),
        ([*TRAIN, "--options.compensation", "maybe"], "options.compensation cannot be 'maybe': give true or false."),
        ([*TRAIN, "--set", "training.epochs"], "--set needs KEY=VALUE"),
        (["lern"], "unknown command 'lern': did you mean 'learn'?"),
        (["test", "m", "photos", "--out", "."], "argument --out: '.' is a folder: give the name of a file (see"),
        (["report", "m", "--out", "/"], "argument --out: '/' is a folder: give the name of a file (see"),
        (["test", "m", "photos", "--out", "x" * 300], "there is no folder"),
        ([*TRAIN, "--seed", "one"], "argument --seed: invalid int value: 'one'"),
        ([*TRAIN, "--method", "finetune", "--options.drift", "none"], "unknown argument '--options.drift'"),
        ([*TRAIN, "--encoder.heads", "5"], "encoder.width 64 is not a multiple of encoder.heads 5."),
        (
            [*TRAIN, "--scenario.image_size", "9"],
            "scenario.image_size 9 is not a multiple of encoder.patch 2: change one.",
        ),
        ([*TRAIN, "--scenario.sizes", "1,2,3"], "scenario.sizes [1, 2, 3] must be 5 positive numbers"),
        ([*TRAIN, "--scenario.sizes", "two"], "scenario.sizes cannot be 'two'"),
        ([*TRAIN, "--scenario.order", "paper"], "class order is known for cifar100, tiny-imagenet, imagenet100 only"),
        ([*TRAIN, "--scenario.validation", "1.5"], "scenario.validation is 1.5: give a share from 0 to below 1."),
        (["train", "digits/11"], "10 classes cannot be split into 11 tasks: ask for 10 tasks or fewer."),
        (["train", "digits/11", "--dry-run"], "10 classes cannot be split into 11 tasks"),
        ([*TRAIN, "--device", "tpu"], "unknown device 'tpu': give auto, cpu, cuda, cuda:N or mps."),
        ([*TRAIN, "--device", "meta"], "device 'meta' is not supported"),
        ([*TRAIN, "--device", "cuda:99"], "device 'cuda:99' was asked for, but torch"),
        (["list", "method"], "'methods', 'scenarios', 'datasets'"),
        (["demo", "--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["report"], "required: RUN"),
    ],
)
def test_the_sentence_says_what_to_do(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert expected in refusal(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["report", "compare", "evaluate"])
def test_paths_that_are_no_runs(verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    what = "model and no run folder" if verb == "report" else "run folder"
    assert f"there is no {what} nowhere: check the path" in refusal(capsys, verb, "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("not a run")
    for path in ("empty", "note.txt"):
        assert path in refusal(capsys, verb, path)


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert refusal(capsys, *TRAIN, "--device", "cuda").endswith("finds no such GPU: ask for cpu instead.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--encoder.heads", "0"],
        ["--encoder.patch", "0"],
        ["--encoder.width", "-64"],
        ["--encoder.mlp_ratio", "-1"],
        ["--training.lr", "nan"],
        ["--training.lr", "inf"],
        ["--options.network.sharpest", "0"],
        ["--method", "er", "--options.buffer", "-1"],
    ],
)
def test_numbers_nothing_can_be_built_from(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments[-2].removeprefix("--") in refusal(capsys, *TRAIN, *arguments)
