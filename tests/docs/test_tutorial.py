"""The tutorial is followed from an empty folder to the end, and prints what it says."""

import re
import shutil
from pathlib import Path

import pytest
from helpers.tutorial_blocks import blocks_of, following, missing_lines

from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.model_folder import ModelFolder
from gcab.methods.gcab import Gcab

DOCUMENTS = Path(__file__).parents[2] / "docs"
TUTORIAL = DOCUMENTS / "tutorial.md"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, plain_translation: None) -> None:
    """Lessons with a small eye, and a plain export: what takes long, and is tested elsewhere."""
    del plain_translation
    monkeypatch.setitem(Gcab.profiles["extended"], "options.eye", 512)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.repeats
@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the tutorial asks the server with curl")
def test_the_tutorial_works_from_an_empty_folder(tmp_path: Path) -> None:
    wrong = []
    with following(tmp_path) as follower:
        for block in blocks_of(TUTORIAL):
            wrong += follower.follow(block)
        ended = follower.stop()
    assert not wrong, "\n".join(wrong)
    assert "The server has ended." in ended
    assert not (tmp_path / "photos" / "week1").exists()
    folder = ModelFolder(tmp_path / "birds.gcab")
    documented = re.sub(r"\d{4}", "NUMBER", (DOCUMENTS / "reference.md").read_text("utf-8"))
    for entry in folder.path.iterdir():
        assert f"`{re.sub(r'[0-9]{4}', 'NUMBER', entry.name)}" in documented, "a file of a model is not documented"
    assert list(folder.generations()) == [3]  # the fourth was undone, and the second is two steps back
    assert folder.description()["config"]["method"] == "gcab-fast"
    assert not folder.work.exists()
    model = ContinualClassifier.load(tmp_path / "birds.gcab", "cpu")
    assert model.classes == ["kingfisher", "robin", "goldfinch", "magpie"]
    photos = [tmp_path / name for name in ("some.jpg", "more/1.jpg", "more/2.jpg")]
    assert model.predict(photos).tolist() == ["kingfisher", "goldfinch", "magpie"]


def test_every_command_of_the_tutorial_is_followed_by_what_it_prints() -> None:
    kinds = [block.kind for block in blocks_of(TUTORIAL) if block.kind in ("bash", "text")]
    assert kinds[::2] == ["bash"] * (len(kinds) // 2)
    assert kinds[1::2] == ["text"] * (len(kinds) // 2)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("generation 2: 97.5 % right", "generation 3: 97.5 % right"),
        ("learning 2 classes from 80 photos", "learning 2 classes from 81 photos"),
        ("exit code 1", "exit code 2"),
        ('    "generation": 3,', '    "generation": 4,'),
        ("robin 0.9", "wren 0.9"),
        ("one\ntwo", "two\none"),
        ("one\none", "one"),
        ("one\n...\ntwo", "two"),
    ],
)
def test_what_is_not_printed_is_noticed(expected: str, printed: str) -> None:
    assert missing_lines(expected, printed) != []


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("97.5 % of 20 held-out photos (3 s)", "100.0 % of 20 held-out photos (12 s)"),
        ("at most 1e-07, gcab 0.1.0", "at most 3e-11, gcab 1.12.0"),
        ("4 classes, 1.2 MB", "4 classes, 973.4 kB"),
        ("served at http://127.0.0.1:8000;", "served at http://127.0.0.1:45107;"),
        ("a   b", "  a b  "),
        ("one\n...\nfour", "one\ntwo\nthree\nfour"),
        (" " * 50 + "magpie 0.9%", "nothing"),
        ("", "anything"),
    ],
)
def test_what_differs_between_machines_does_not_count(expected: str, printed: str) -> None:
    assert missing_lines(expected, printed) == []
