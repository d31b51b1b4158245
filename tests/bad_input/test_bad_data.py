"""Data that is missing, damaged or not enough: the sentence names the file, and no run is started."""

from pathlib import Path

import pytest
from helpers.commands import QUICK, refusal
from helpers.photos import make_photos
from PIL import Image

from gcab.cli.main import main

CLASSES = [f"class{number}" for number in range(4)]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make_photos(tmp_path / "photos", CLASSES, count=5, side=16)


def refused(capsys: pytest.CaptureFixture[str], photos: Path, scenario: str = "folder/2") -> str:
    """The sentence that refuses these photos; training and a dry run must agree, and neither writes anything."""
    before = sorted(photos.parent.iterdir())
    command = ["train", scenario, "--data", str(photos), *QUICK]
    said = refusal(capsys, *command)
    assert refusal(capsys, *command, "--dry-run") == said
    assert sorted(photos.parent.iterdir()) == before
    return said


@pytest.mark.parametrize("scenario", ["cifar100/10", "tiny-imagenet/5", "imagenet100/10", "folder/2"])
def test_data_that_was_not_named(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "train", scenario).endswith("needs a folder: give --data DIR.")


def test_a_dry_run_of_unknown_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "train", "folder/2", "--dry-run").endswith("give --data DIR.")


@pytest.mark.parametrize("scenario", ["tiny-imagenet/5", "imagenet100/10", "folder/2"])
def test_a_data_folder_that_is_not_there(scenario: str, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "does not exist" in refusal(capsys, "train", scenario, "--data", photos / "nowhere")


def test_cifar_that_cannot_be_fetched(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    said = refusal(capsys, "train", "cifar100/10", "--data", photos.parent / "new")
    assert "cannot be fetched (no route)" in said
    assert not (photos.parent / "new").exists()


def test_damaged_cifar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "cifar-100-python.tar.gz"
    archive.write_bytes(b"\x1f\x8b damaged")
    said = refusal(capsys, "train", "cifar100/10", "--data", tmp_path)
    assert said == f"{archive} is not the published archive (its md5 differs): delete it and try again."
    folder = tmp_path / "unpacked" / "cifar-100-python"
    folder.mkdir(parents=True)
    for name in ("train", "test", "meta"):
        (folder / name).write_bytes(b"damaged")
    said = refusal(capsys, "train", "cifar100/10", "--data", tmp_path / "unpacked")
    assert said == f"{folder / 'train'} is not the published file (its md5 differs): delete it and fetch it again."


def test_an_empty_image(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = photos / "class1" / "000.png"
    image.write_bytes(b"")
    assert refused(capsys, photos) == f"{image} is empty (0 bytes): remove it or fetch it again."


def test_an_image_cut_short(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = photos / "class1" / "000.png"
    image.write_bytes(image.read_bytes()[:-200])
    assert refused(capsys, photos).startswith(f"{image} is damaged or cut short (")


def test_an_animation(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    frames[0].save(photos / "class1" / "a.gif", save_all=True, append_images=frames[1:])
    assert refused(capsys, photos).endswith("a.gif is animated or has several pages (2): save one of them as PNG.")


@pytest.mark.repeats
@pytest.mark.parametrize("side", [9000, 30000])
def test_a_gigantic_image(side: int, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("1", (side, side)).save(photos / "class1" / "000.png")
    assert refused(capsys, photos).endswith("class1/000.png has more than 64 million pixels: shrink it first.")


def test_a_class_without_images(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "nothing").mkdir()
    assert "no images in the class folder nothing" in refused(capsys, photos)


def test_a_text_file_among_the_images_is_left_out(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "class1" / "notes.txt").write_text("holiday")
    assert main(["train", "folder/2", "--data", str(photos), "--dry-run"]) == 0
    assert caplog.messages == ["1 file left out, as no images or hidden: class1/notes.txt."]


def test_a_class_with_one_image(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for image in sorted((photos / "class2").iterdir())[1:]:
        image.unlink()
    assert "has one image only of class2" in refused(capsys, photos)


def test_more_tasks_than_classes(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, photos, "folder/5") == "4 classes cannot be split into 5 tasks: ask for 4 tasks or fewer."


def test_images_outside_any_class(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds images outside any class folder" in refused(capsys, photos / "class1")


def test_a_file_instead_of_a_folder(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is a file: name the folder instead" in refused(capsys, photos / "class1" / "000.png")
