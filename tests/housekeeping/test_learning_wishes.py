"""Labels from a table, a lesson that is only planned, and the photos a model is least sure of."""

import json
import re
import shutil
from pathlib import Path

import pytest
from helpers.commands import refusal, succeeds
from helpers.photos import WEEK1, make_photos, pictures, save_photos

from gcab import ContinualClassifier, ModelFolder, teach
from gcab.data.labels import labelled_by

EYE = ("--method", "eye", "--set", "options.features=64", "--device", "cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos") / "week1", WEEK1)


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    """Photos of two classes in one folder, with a table beside them."""
    folder = tmp_path / "loose"
    images = [*pictures("oak", 6, 8), *pictures("elm", 6, 8)]
    files = save_photos(folder, images)  # type: ignore[arg-type]
    lines = [f"{file.name},{'oak' if number < 6 else 'elm'}" for number, file in enumerate(files)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", "", *lines]))
    return folder


def test_classes_from_a_table(loose: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "labels.csv"
    succeeds(capsys, "learn", tmp_path / "m", loose, "--labels", table, *EYE)
    model = ContinualClassifier.load(tmp_path / "m", "cpu")
    assert model.classes == ["elm", "oak"]
    assert model.method.image_counts() == [6, 6]


def test_photos_that_the_table_does_not_name_are_told(
    loose: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "few.csv").write_text("003.png,oak\n007.png,elm\n")
    files, labels = labelled_by(tmp_path / "few.csv", loose)
    assert ([file.name for file in files], labels) == (["003.png", "007.png"], ["oak", "elm"])
    assert "10 files left out, which the table does not name: 000.png, 001.png" in caplog.text


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_may_be_written_as_any_spreadsheet_does(mark: str, loose: Path, tmp_path: Path) -> None:
    lines = [("file", "label"), ("003.png", '"oak, old"'), ("007.png", "elm")]
    (tmp_path / "few.csv").write_text("\ufeff" + "".join(f"{file}{mark}{label}\r\n" for file, label in lines), "utf-8")
    files, labels = labelled_by(tmp_path / "few.csv", loose)
    assert ([file.name for file in files], labels) == (["003.png", "007.png"], ["oak, old", "elm"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("file,label\n000.png,oak\nlost.png,elm", "labels.csv, line 3, names 'lost.png', which is no file in"),
        ("000.png,oak\n000.png,elm", "line 2, names '000.png' again, as line 1 does"),
        ("000.png,oak\n001.png", "line 2, is not file,label"),
        ("000.png,oak\n001.png,", "line 2, is not file,label"),
        ("000.png,oak,train", "line 1, is not file,label"),
        ("../labels.csv,oak", "line 1, names '../labels.csv': give a file below"),
        ("file,label\n", "names no photo"),
        ('000.png,"oak', "cannot be read as a CSV table"),
    ],
)
def test_what_is_wrong_in_a_table_is_named_by_its_line(
    text: str, sentence: str, loose: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels.csv").write_text(text)
    assert sentence in refusal(capsys, "learn", tmp_path / "m", loose, "--labels", tmp_path / "labels.csv", *EYE)
    assert not (tmp_path / "m").exists()


def test_a_table_or_a_folder_that_is_not_there(loose: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "labels.csv"
    assert "there is no table" in refusal(capsys, "learn", tmp_path / "m", loose, "--labels", tmp_path / "none.csv")
    assert "name one of photos" in refusal(capsys, "learn", tmp_path / "m", tmp_path / "none", "--labels", table)


def test_a_plan_writes_nothing(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = succeeds(capsys, "learn", tmp_path / "m", photos, "--dry-run", *EYE)
    assert "generation 1 would learn circle, square" in said
    assert "24 photos (4 held out): circle 12, square 12" in said
    assert re.search(r"eye, 8 x 8 pixels, on cpu: about \d+ s or less; nothing was written", said)
    assert list(tmp_path.iterdir()) == []
    teach(tmp_path / "m", photos, method="eye", settings={"options.features": 64}, device="cpu")
    before = sorted((file, file.stat().st_mtime_ns) for file in tmp_path.rglob("*"))
    more = make_photos(tmp_path.with_name(f"{tmp_path.name}-more"), ["circle", "star"], count=3)
    (more / "star" / "broken.png").write_bytes(b"noise")
    learn = ("learn", tmp_path / "m", more, "--dry-run", "--device", "cpu")
    assert "1 of 7 photos cannot be read" in refusal(capsys, *learn)
    planned = json.loads(succeeds(capsys, *learn, "--skip-unreadable", "--progress", "json"))
    assert (planned["event"], planned["generation"], planned["held_out"]) == ("plan", 2, 0)
    assert (planned["classes"], planned["again"], len(planned["skipped"])) == (["star"], ["circle"], 1)
    assert sorted((file, file.stat().st_mtime_ns) for file in tmp_path.rglob("*")) == before


def test_a_name_that_differs_from_a_known_one_by_capitals_is_pointed_out(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "'Square' is a new class beside 'square': if they are one, 'gcab join' makes it of them"
    more = make_photos(tmp_path / "more", ["Square", "circle", "oval"], count=2)
    assert "beside" not in succeeds(capsys, "learn", tmp_path / "m", photos, *EYE)
    learn = ("learn", tmp_path / "m", more, "--device", "cpu")
    for given in ((*learn, "--dry-run"), learn):
        assert " ".join(succeeds(capsys, *given).split()).count(sentence) == 1
    succeeds(capsys, "join", tmp_path / "m", "square", "Square")


def test_as_many_generations_as_a_lesson_asks_for(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learn = ("learn", tmp_path / "m", photos, "--keep", "2", *EYE)
    succeeds(capsys, *learn)
    for name in ("one", "two", "three"):
        succeeds(
            capsys, "rename", tmp_path / "m", str(ContinualClassifier.load(tmp_path / "m", "cpu").classes[0]), name
        )
    assert list(ModelFolder(tmp_path / "m").generations()) == [2, 3, 4]
    assert "generations 2, 3 kept for undo" in succeeds(capsys, "info", tmp_path / "m")
    assert "not of this model" not in succeeds(capsys, "audit", tmp_path / "m")
    assert "'-1' is not a whole number from 0 on" in refusal(capsys, *learn[:3], "--keep=-1")


def test_photos_it_is_least_sure_of_are_shown_and_not_stored(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = shutil.copytree(photos, tmp_path / "mixed")
    for file in sorted((mixed / "circle").iterdir())[:6]:  # half of the circles are in the wrong folder
        file.rename(mixed / "square" / f"circle-{file.name}")
    shown = []

    def listen(event: dict[str, object]) -> None:
        shown.append(event)

    wishes = {"method": "eye", "settings": {"options.features": 64}, "device": "cpu", "held_out": 0.5}
    result = teach(tmp_path / "m", mixed, progress=listen, **wishes)  # type: ignore[arg-type]
    wrong = [photo for photo in result.unsure if photo.label != photo.guess]
    assert wrong
    assert all(photo.label == Path(photo.file).parent.name for photo in wrong)
    assert shown[-1]["unsure"]
    stored = (ModelFolder(tmp_path / "m").current() / "model.json").read_text()
    assert Path(wrong[0].file).name not in stored
    again = succeeds(capsys, "learn", tmp_path / "m", mixed, *EYE, "--held-out", "0.5")
    assert f"least sure of:\n  {result.unsure[0].file} ({result.unsure[0].label} " in again
