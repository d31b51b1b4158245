"""What a person notices first: commands that refuse at once, nouns that agree, names that are offered."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.commands import succeeds
from helpers.eyes import eye, many
from helpers.photos import bird
from rich.console import Console

import gcab
from gcab import GcabError, ModelFolder
from gcab.classifier.overview import overview
from gcab.cli.info import show_tasks
from gcab.cli.verbs import say_table
from gcab.parallel.devices import choose_device


@pytest.mark.parametrize(
    "command",
    [
        ["info", "none"],
        ["audit", "none"],
        ["history", "none"],
        ["undo", "none"],
        ["predict", "none", "x.jpg"],
        ["learn", "m.gcab", "none"],
        ["test", "none", "."],
        ["rename", "none", "a", "b"],
        ["join", "none", "a", "b"],
        ["forget", "none", "a"],
    ],
)
def test_a_refusal_does_not_wait_for_torch(command: list[str], tmp_path: Path) -> None:
    program = (
        f"import sys; from gcab.cli.main import main; code = main({command!r}); "
        "sys.exit(code + 10 * ('torch' in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr


@pytest.mark.repeats
def test_the_history_of_a_model_needs_no_torch(tmp_path: Path) -> None:
    ModelFolder(tmp_path / "m").write(eye().learn(*many(0, 1)).save)
    program = "import sys; from gcab.cli.main import main; main(['history', 'm']); sys.exit('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "lesson 1" in ended.stdout


@pytest.mark.parametrize(("lessons", "off"), [(1, 0.0), (1, 5.0), (2, 0.0), (2, 5.0)])
def test_a_sign_is_explained_where_it_stands(tmp_path: Path, lessons: int, off: float) -> None:
    model = eye()
    for lesson in range(lessons):
        model.learn(*many(2 * lesson, 2 * lesson + 1, count=10), held_out=0.2)
    ModelFolder(tmp_path / "m").write(model.save)
    facts = overview(tmp_path / "m")
    facts["tasks"][-1]["now"] = facts["tasks"][-1]["accuracy"] - off
    show_tasks(facts, Console(file=(printed := io.StringIO()), width=120))
    table, sign, _ = printed.getvalue().partition("now ~: estimated")
    assert bool(sign) == ("~" in table) == (lessons > 1 or off > 0)


def test_one_is_not_many_and_names_stay_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = many(0, count=10)
    name = "a name as long as some museums write them, with the year of the find"
    ModelFolder(tmp_path / "m").write(eye().learn(images, [name] * len(labels), held_out=0.1).save)
    said = succeeds(capsys, "info", tmp_path / "m")
    assert "1 class in 1 task;" in said
    assert "calibrated on 10 photos held or left out," in said
    assert any(line.endswith(name) for line in said.splitlines())


def test_a_narrow_window_breaks_a_table_between_words_of_its_last_column() -> None:
    def shown(width: int, terminal: bool = True) -> list[str]:
        console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
        say_table(console, [["task", "photos", "names"], ["1", "12", "barn owl, long-eared owl, wren"]], left=(2,))
        return console.file.getvalue().splitlines()  # type: ignore[attr-defined]

    whole = ["task  photos  names", "   1      12  barn owl, long-eared owl, wren"]
    assert shown(80) == shown(30, terminal=False) == whole
    assert shown(40) == [whole[0], "   1      12  barn owl, long-eared owl,", "              wren"]
    assert shown(30) == [whole[0], "   1      12", "      barn owl, long-eared", "      owl, wren"]
    assert shown(18)[:4] == ["task  photos", "      names", "   1      12", "      barn owl,"]


def test_the_public_names_are_offered() -> None:
    assert {"ContinualClassifier", "GcabError", "ModelFolder", "teach"} <= set(dir(gcab))


def test_a_single_picture_is_a_batch_of_one() -> None:
    model = eye().learn(*many(0, 1))
    assert model.predict(bird()).shape == (1,)


def test_an_apple_gpu_is_taken_where_it_can_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GcabError, match="finds no Apple GPU: ask for cpu instead"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("mps") == torch.device("mps")
