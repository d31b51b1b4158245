"""What `gcab evaluate --heads` counts, by hand: two heads, of two classes and of one, four images."""

from pathlib import Path

import numpy as np
import pytest
from helpers.settings import train_flags

from gcab.cli.main import main
from gcab.evaluation.heads import auroc, either, errors, heads, rivals

CLASSES = [2, 1]
LABELS = np.array([0, 1, 2, 2])
LOGITS = np.array(
    [
        [3.0, 1.0, 2.0],  # right
        [0.0, 1.0, 4.0],  # the other head wins; told the task, right
        [5.0, 0.0, 1.0],  # the other head wins; told the task, right
        [-1.0, -2.0, 2.0],  # right
    ]
)


def test_every_head_about_its_own_images_and_the_others() -> None:
    first, second = heads(LOGITS, LABELS, CLASSES)
    assert first.own == (2.0, 1.0)
    assert first.others == (2.0, 3.0)
    assert first.auroc == 0.5, "3 and 1 against 5 and -1"
    assert first.found == first.won == 50.0
    assert second.own == (1.5, 0.5)
    assert second.others == (3.0, 1.0)
    assert second.auroc == pytest.approx(0.125), "1 and 2 against 2 and 4: one tie of four"
    assert second.found == second.won == 50.0


def test_the_true_class_against_the_other_heads() -> None:
    met = rivals(LOGITS, LABELS, CLASSES)
    assert met.positive == pytest.approx(3 / 4)
    assert met.largest == pytest.approx((2 + 4 + 5 - 1) / 4)
    assert met.true == pytest.approx((3 + 1 + 1 + 2) / 4)
    assert met.lead == pytest.approx((2 + 1) / 2), "the class that is alone in its head has nobody to lead"
    assert rivals(LOGITS[2:, [0, 2]], np.array([1, 1]), [1, 1]).lead == 0.0


def test_mistakes_of_the_task_and_of_the_class() -> None:
    missed = errors(LOGITS, LABELS, CLASSES)
    assert (missed.task, missed.within, missed.told) == (50.0, 0.0, 100.0)
    within = errors(LOGITS[:, [1, 0, 2]], LABELS, CLASSES)
    assert (within.task, within.within, within.told) == (50.0, 25.0, 50.0)
    assert errors(LOGITS[[0, 3]], LABELS[[0, 3]], CLASSES).told == 0.0, "nothing was wrong"


def test_decisions_that_err_differently() -> None:
    other = LOGITS[:, [2, 1, 0]]  # 2 > 1 < 3; 4; 1 < 5; 2: right task for images 2 and 3 only
    assert either(LOGITS, LOGITS, LABELS, CLASSES) == (50.0, 50.0)
    assert either(LOGITS, other, LABELS, CLASSES) == (0.0, 100.0)


def test_auroc_of_one_distribution_and_of_two_far_apart() -> None:
    values = np.random.default_rng(1).normal(size=200)
    assert auroc(values, values) == 0.5
    assert auroc(values + 100, values) == 1.0
    assert auroc(values - 100, values) == 0.0


def test_the_command_says_it_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = train_flags("gcab", {"training.epochs": 1, "training.warmup_epochs": 0})
    run = str(tmp_path / "run")
    assert main(["train", "digits/2", *tiny, "--device", "cpu", "--run", run]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "--heads", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    wrong_task = 100 - float(printed.partition("task_identification: ")[2].partition(" %")[0])
    assert f"whole: {wrong_task:.1f} % to a wrong task" in printed
    assert "of 1 other heads with a logit above 0" in printed
    assert "heads, not compensated: " in printed
    assert "the task is found by both heads and statistics: " in printed
    assert main(["evaluate", run, "--device", "cpu"]) == 0
    assert "AUROC" not in capsys.readouterr().out
