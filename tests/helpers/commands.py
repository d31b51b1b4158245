"""A command that is refused: exit code 2 and one sentence."""

from pathlib import Path

import pytest

from gcab.cli.main import main
from helpers.settings import train_flags

QUICK = train_flags("finetune", {"training.epochs": 1, "training.batch_size": 64})
DIGITS = ["train", "digits/2", *QUICK]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The sentence with which a command is refused, without the program's name."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    return sentence(capsys.readouterr().err)


def sentence(errors: str) -> str:
    """What follows `gcab: ` in the only line of the error stream."""
    assert errors.startswith("gcab: ")
    assert errors.count("\n") == 1
    assert errors.endswith("\n")
    assert "Traceback" not in errors
    return errors.removeprefix("gcab: ").strip()


def succeeds(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a command prints that is not refused."""
    capsys.readouterr()
    code, captured = main([str(argument) for argument in arguments]), capsys.readouterr()
    assert (code, captured.err) == (0, "")
    return captured.out
