"""A person's own images: every layout, a test share that never changes, and a sentence for every mistake."""

import os
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from gcab.data import cache
from gcab.data import folder as module
from gcab.data.folder import labelled_files, load
from gcab.data.images import Split
from gcab.errors import GcabError


def picture(path: Path, shade: int = 0, mode: str = "L") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (5, 7), shade).save(path)
    return path


def shades(root: Path, split: str) -> list[int]:
    return load(root, "train" if split == "train" else "test", 4).images[:, 0, 0, 0].tolist()


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    for index in range(10):
        picture(tmp_path / "pets" / "cat" / f"{index}.png", index)
    for index in range(3):
        picture(tmp_path / "pets" / "dog" / "garden" / f"{index}.JPG", 100)
    picture(tmp_path / "pets" / "dog" / "bed.bmp", 200)
    return tmp_path / "pets"


def test_share_of_each_class_is_tested(animals: Path) -> None:
    train, test = load(animals, "train", 4), load(animals, "test", 4)
    assert train.classes == test.classes == ("cat", "dog")
    assert train.labels.tolist() == [0] * 8 + [1] * 3
    assert test.labels.tolist() == [0] * 2 + [1]
    cats = shades(animals, "train")[:8] + shades(animals, "test")[:2]
    assert sorted(cats) == list(range(10))


def test_share_depends_on_the_names_alone(animals: Path, tmp_path: Path) -> None:
    chosen = shades(animals, "test")
    assert chosen[:2] == [0, 8]  # fixed for ever: another choice would mix training and test images of old runs
    moved = tmp_path / "elsewhere" / "animals"
    shutil.copytree(animals, moved)
    for index in reversed(range(10)):
        (moved / "cat" / f"{index}.png").touch()
    picture(moved / "cow" / "1.png")
    picture(moved / "cow" / "2.png")
    assert shades(moved, "test")[:2] == chosen[:2]


@pytest.mark.parametrize(("count", "tested"), [(2, 1), (3, 1), (7, 1), (8, 2), (10, 2), (13, 3)])
def test_size_of_the_share(tmp_path: Path, count: int, tested: int) -> None:
    for index in range(count):
        picture(tmp_path / "only" / f"{index}.png")
    assert len(load(tmp_path, "test", 4).labels) == tested
    assert len(load(tmp_path, "train", 4).labels) == count - tested


def test_hidden_files_are_ignored(animals: Path) -> None:
    before = load(animals, "train", 4)
    (animals / "cat" / ".DS_Store").write_text("x")
    (animals / "cat" / "Thumbs.db").write_text("x")
    (animals / "README.txt").write_text("about my pets")
    picture(animals / ".cache" / "a.png")
    picture(animals / "dog" / ".thumbs" / "a.png")
    after = load(animals, "train", 4)
    assert after.classes == before.classes
    assert torch.equal(after.images, before.images)


@pytest.mark.parametrize(
    ("train", "test"),
    [("train", "test"), ("train", "val"), ("train", "validation"), ("train", "dev"), ("training", "testing")],
)
def test_given_division_is_kept(tmp_path: Path, train: str, test: str) -> None:
    for index, name in enumerate(("a", "b")):
        picture(tmp_path / train / name / "1.png", 10 * index + 1)
        picture(tmp_path / train / name / "deep" / "2.png", 10 * index + 2)
        picture(tmp_path / test / name / "1.png", 10 * index + 3)
    assert shades(tmp_path, "train") == [1, 2, 11, 12]
    assert shades(tmp_path, "test") == [3, 13]
    picture(tmp_path / test / "c" / "1.png")
    with pytest.raises(GcabError, match="lacks training or test images of c:"):
        load(tmp_path, "train", 4)


def test_test_goes_before_val_and_train_alone_is_a_class(tmp_path: Path) -> None:
    for folder, shade in (("train", 1), ("val", 2), ("test", 3)):
        picture(tmp_path / "all" / folder / "a" / "1.png", shade)
    assert shades(tmp_path / "all", "test") == [3]
    for name in ("train", "bus"):
        for index in range(2):
            picture(tmp_path / "traffic" / name / f"{index}.png")
    assert load(tmp_path / "traffic", "train", 4).classes == ("bus", "train")


def test_a_test_folder_without_classes_leaves_the_word_to_validation(tmp_path: Path) -> None:
    for folder, shade in (("train", 1), ("validation", 2)):
        picture(tmp_path / folder / "a" / "1.png", shade)
        picture(tmp_path / folder / "b" / "1.png", shade)
    picture(tmp_path / "test" / "unknown.png", 3)
    assert shades(tmp_path, "test") == [2, 2]
    shutil.rmtree(tmp_path / "validation")
    with pytest.raises(GcabError, match=r"test' holds images outside any class folder \(unknown\.png\)"):
        load(tmp_path, "test", 4)


def test_many_images_are_decoded_once(
    animals: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    splits: tuple[Split, ...] = ("train", "test")
    plain = {split: load(animals, split, 4) for split in splits}
    monkeypatch.setattr(module, "MANY", 1)
    for _ in range(2):
        for split, before in plain.items():
            found = load(animals, split, 4)
            assert torch.equal(found.images, before.images)
            assert torch.equal(found.labels, before.labels)
        monkeypatch.setattr(cache.Cache, "fill", None)  # the second time nothing is decoded
    assert len(list((animals / ".gcab-cache").glob("*.images"))) == 2
    assert not caplog.messages


def test_any_mode_and_size(tmp_path: Path) -> None:
    for index, mode in enumerate(("1", "L", "LA", "P", "RGB", "RGBA", "I;16")):
        picture(tmp_path / "a" / f"{index}.png", mode=mode)
    picture(tmp_path / "a" / "cmyk.jpg", mode="CMYK")
    Image.new("RGB", (300, 20)).save(tmp_path / "a" / "wide.webp")
    assert len(load(tmp_path, "train", 6).images) + len(load(tmp_path, "test", 6).images) == 9


def test_files_that_are_no_images_are_named_once_and_left_out(animals: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = load(animals, "train", 4)
    assert not caplog.messages
    (animals / "cat" / "notes.txt").write_text("x")
    (animals / "cat" / "old" / "more").mkdir(parents=True)
    (animals / "cat" / "old" / "more" / "a.xls").write_text("x")
    (animals / "__MACOSX" / "cat").mkdir(parents=True)
    assert torch.equal(load(animals, "train", 4).images, before.images)
    named = f"__MACOSX, {Path('cat/notes.txt')}, {Path('cat/old/more/a.xls')}"
    assert caplog.messages == [f"3 files left out, as no images or hidden: {named}."]


def test_long_lists_are_cut(animals: Path, caplog: pytest.LogCaptureFixture) -> None:
    for index in range(9):
        (animals / "cat" / f"{index}.txt").write_text("x")
    load(animals, "train", 4)
    assert caplog.messages[0].startswith("9 files left out")
    assert caplog.messages[0].endswith("3.txt, cat/4.txt and 4 more.")


def test_pictures_are_known_by_how_they_begin(animals: Path) -> None:
    before = len(load(animals, "train", 4).images) + len(load(animals, "test", 4).images)
    (animals / "cat" / "0.png").rename(animals / "cat" / "zero")
    (animals / "cat" / "1.png").rename(animals / "cat" / "one.picture")
    assert len(load(animals, "train", 4).images) + len(load(animals, "test", 4).images) == before


@pytest.mark.parametrize("other", ["val", "valid", "validation", "dev", "test"])
def test_a_divided_folder_is_learned_from_its_training_part(
    animals: Path, tmp_path: Path, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(animals, tmp_path / "divided" / "train")
    picture(tmp_path / "divided" / other / "cow" / "1.png")
    files, names = labelled_files(tmp_path / "divided")
    assert set(names) == {"cat", "dog"}
    assert all("train" in file.parts for file in files)
    assert caplog.messages == [f"the photos of '{tmp_path / 'divided'}' are taken from train/; {other}/ left out."]


def test_a_division_without_classes_is_refused(tmp_path: Path) -> None:
    for name in ("train", "val"):
        picture(tmp_path / name / "1.png")
    with pytest.raises(GcabError, match="holds train/ and val/ without class folders in them"):
        labelled_files(tmp_path)
    picture(tmp_path / "bus" / "1.png")  # a train among other vehicles
    assert set(labelled_files(tmp_path)[1]) == {"bus", "train", "val"}


@pytest.mark.parametrize(
    ("layout", "instead"),
    [
        ("week1: circle square, week2: bar cross ring", "week1"),
        ("week1: circle square, week2: circle square", "week1"),  # more photos of the same classes
        ("week1: circle, week2: bar cross", "week2"),
        ("monday: cat dog, tuesday: cow dog", "monday"),
        ("week1: circle square", "week1"),
        ("week1: circle/images square/images, week2: bar/images ring/images", "week1"),
        ("week1: 00001 00002, week2: 00003 00004", None),  # could be bursts
        ("cat: images, dog: images", None),  # as Tiny-ImageNet
        ("cat: images, dog: photos", None),
        ("cat: burst-1 burst-2, dog: burst-1", None),
        ("cat: burst-017 burst-018, dog: burst-019 burst-2", None),
        ("cat: 2023 2024", None),
        ("cat: front back, dog: front back", None),
        ("0: front back, 1: front back", None),
        ("cat: . burst mirrored, dog: other", None),  # some photos lie in the class folder itself
    ],
)
def test_folders_of_classes_are_no_classes(tmp_path: Path, layout: str, instead: str | None) -> None:
    root, shade = tmp_path / "photos", 0
    for part in layout.split(", "):
        name, _, folders = part.partition(": ")
        for folder in folders.split():
            for number in range(2):
                picture(root / name / folder / f"{number}.png", shade := shade + 1)
    names = {path.name for path in root.iterdir()}
    if instead is None:
        assert set(labelled_files(root)[1]) == names == set(load(root, "train", 4).classes)
        return
    for read in (lambda: labelled_files(root), lambda: load(root, "train", 4)):
        with pytest.raises(GcabError, match=f"give '{root / instead}' instead of '{root}'"):
            read()
    picture(root / instead / "loose.png")
    assert set(labelled_files(root)[1]) == names


def test_bad_image_is_named(animals: Path) -> None:
    for path in (animals / "cat").iterdir():
        path.write_text("text")
    with pytest.raises(GcabError, match=r"cat/\d\.png is not an image"):
        load(animals, "train", 4)


def test_places_that_are_no_folder_of_classes(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match="name it as the root"):
        load(None, "train", 4)
    with pytest.raises(GcabError, match="does not exist"):
        load(tmp_path / "nowhere", "train", 4)
    with pytest.raises(GcabError, match=r"nowhere\.csv' of data set 'folder' does not exist"):
        load(tmp_path / "nowhere.csv", "train", 4)
    (tmp_path / "file").touch()
    with pytest.raises(GcabError, match="is a file"):
        load(tmp_path / "file", "train", 4)
    with pytest.raises(GcabError, match="has no class folders"):
        load(tmp_path, "train", 4)
    (tmp_path / "cat").mkdir()
    with pytest.raises(GcabError, match="no images in the class folder cat"):
        load(tmp_path, "train", 4)
    picture(tmp_path / "cat" / "1.png")
    with pytest.raises(GcabError, match="one image only of cat"):
        load(tmp_path, "train", 4)
    picture(tmp_path / "loose.png")
    with pytest.raises(GcabError, match=r"outside any class folder \(loose\.png\)"):
        load(tmp_path, "train", 4)


@pytest.mark.parametrize("locked", ["pets", "pets/dog", "pets/dog/garden"])
def test_a_folder_that_cannot_be_opened_is_named(animals: Path, locked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def guarded(function: Callable[[str | Path], Any]) -> Callable[[str | Path], Any]:
        def call(folder: str | Path) -> Any:
            if str(folder) == str(animals.parent / locked):  # as for anyone but root, whom no permission stops
                raise PermissionError(13, "Permission denied", str(folder))
            return function(folder)

        return call

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))
    with pytest.raises(GcabError, match=rf"{locked}' cannot be opened \(Permission denied\): make it readable"):
        labelled_files(animals)


def test_hidden_folders_may_be_locked(animals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (animals / "dog" / ".thumbs").mkdir()
    scandir = os.scandir

    def guarded(folder: str | Path) -> Any:
        if Path(folder).name == ".thumbs":
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    assert set(labelled_files(animals)[1]) == {"cat", "dog"}


def test_class_names_that_are_no_text(animals: Path) -> None:
    (animals / "cat").rename(os.fsdecode(os.fsencode(animals) + b"/caf\xe9"))
    with pytest.raises(GcabError, match=r"the class folder 'caf\\udce9' in '.*pets' has a name that is not UTF-8"):
        labelled_files(animals)


@pytest.mark.parametrize("other", [" robin é", "robin é ", unicodedata.normalize("NFD", "robin é")])
def test_class_names_that_are_one_name(tmp_path: Path, other: str) -> None:
    for name in ("robin é", "robin e", other):
        picture(tmp_path / name / "1.png")
    with pytest.raises(GcabError, match="read the same"):
        labelled_files(tmp_path)
    shutil.rmtree(tmp_path / other)
    assert labelled_files(tmp_path)[1] == ["robin e", "robin é"]


def table(folder: Path, *lines: str) -> Path:
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for index in range(6):
        picture(tmp_path / "photos" / f"{index}.png", index)
    return tmp_path


@pytest.mark.parametrize("header", [[], ["path,label,split"], ["\ufeffPath, Label, Split"], ["file_name,label,split"]])
def test_table_with_a_split(photos: Path, header: list[str]) -> None:
    rows = ["photos/3.png,red fox,train", "photos/1.png,red fox,test", "", "photos/0.png, ant ,train"]
    root = table(photos, *header, *rows, f'"{photos}/photos/2.png","ant",test')
    train = load(root, "train", 4)
    assert train.classes == ("ant", "red fox")
    assert train.labels.tolist() == [0, 1]
    assert shades(root, "train") == [0, 3]
    assert shades(root, "test") == [2, 1]


def test_table_without_a_split_is_shared_like_a_folder(photos: Path, tmp_path: Path) -> None:
    rows = [f"photos/{index}.png,only" for index in range(6)]
    root = table(photos, "path,label", *rows)
    assert len(shades(root, "train")) == 5
    assert shades(root, "test") == shades(table(photos, *reversed(rows)), "test")
    (tmp_path / "folder").mkdir()
    shutil.copytree(photos / "photos", tmp_path / "folder" / "photos")
    assert shades(tmp_path / "folder", "test") == shades(root, "test")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "names no images"),
        (["path,label"], "names no images"),
        (["photos/0.png"], "line 1, has 1 columns"),
        (["photos/0.png,a,train,x"], "line 1, has 4 columns"),
        (["path,label", "photos/0.png,a", "photos/1.png,a,train"], "line 3, has 3 columns"),
        (["filename,class", "photos/0.png,a"], "line 1, names 'filename', which is no file"),
        ([",a"], "names '', which is no file"),
        (["photos,a"], "names 'photos', which is no file"),
        (["photos/0.png,a", "photos/0.png,b"], r"line 2, names 'photos/0\.png' a second time"),
        (["photos/0.png,"], "line 1, has no label"),
        (["photos/0.png,a,validate"], "split 'validate': write train or test"),
        (["photos/0.png,a"], "one image only of a"),
        (["photos/0.png,a,train", "photos/1.png,b,test"], "lacks training or test images of a, b"),
        (['photos/0.png,"a'], "cannot be read as a CSV table"),
    ],
)
def test_wrong_tables(photos: Path, lines: list[str], reason: str) -> None:
    with pytest.raises(GcabError, match=reason):
        load(table(photos, *lines), "train", 4)


def test_table_in_another_encoding(photos: Path) -> None:
    path = photos / "table.csv"
    path.write_bytes("photos/0.png,Bär".encode("latin-1"))
    with pytest.raises(GcabError, match="save it as UTF-8 CSV"):
        load(path, "train", 4)
