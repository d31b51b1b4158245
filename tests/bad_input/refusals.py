"""A command that is refused: exit code 2 and one sentence."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gcab.cli.main import main

TINY = ["--training.epochs=1", "--encoder.width=16", "--encoder.heads=4", "--encoder.blocks=2", "--encoder.patch=4"]
DIGITS = ["train", "digits/2", "--method", "finetune", *TINY]


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


def make_photos(root: Path, classes: int = 4, count: int = 5) -> Path:
    """Folders class0, class1, ... of noise."""
    random = np.random.default_rng(0)
    for label in range(classes):
        (root / f"class{label}").mkdir(parents=True)
        for index in range(count):
            pixels = random.integers(0, 255, (16, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / f"class{label}" / f"{index}.png")
    return root
