"""Tiny ImageNet reads the same from its folder and its zip, and checks every annotation."""

import re
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from gcab.config import resolve
from gcab.data import tiny_imagenet
from gcab.data.images import Split
from gcab.data.tiny_imagenet import DATASET, load
from gcab.errors import GcabError

SPLITS: tuple[Split, ...] = ("train", "test")
CODES = ["n03", "n01", "n02"]
WORDS = ["n00\tentity", "n01\tcrane, a bird", "n02\tcrane", "n03\tgoldfish, Carassius auratus"]


def picture(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8), shade).save(path, "JPEG", quality=95)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    data = tmp_path / "tiny-imagenet-200"
    for label, code in enumerate(CODES):
        for index in range(2):
            picture(data / "train" / code / "images" / f"{code}_{index}.JPEG", 40 * label + 10 * index)
        (data / "train" / code / f"{code}_boxes.txt").write_text("box")
    for index in range(3):
        picture(data / "val" / "images" / f"val_{index}.JPEG", 200 + 10 * index)
    picture(data / "val" / "images" / "._val_0.JPEG", 0)
    picture(data / "test" / "images" / "test_0.JPEG", 0)
    (data / "wnids.txt").write_text("\n".join(CODES) + "\n")
    (data / "words.txt").write_text("\n".join(WORDS))
    annotate(data, "val_1.JPEG\tn02\t0\t0\t5\t5", "val_0.JPEG\tn03\t0\t0\t5\t5", "val_2.JPEG\tn01\t0\t0\t5\t5")
    return tmp_path


def annotate(data: Path, *lines: str) -> None:
    (data / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")


def zipped(root: Path, **extra: str) -> Path:
    data = root / "tiny-imagenet-200"
    target = root / "zip"
    target.mkdir()
    with zipfile.ZipFile(target / "tiny-imagenet-200.zip", "w") as archive:
        archive.mkdir("tiny-imagenet-200")
        for path in data.rglob("*"):
            archive.write(path, path.relative_to(root))
        for name, content in extra.items():
            archive.writestr(name, content)
    return target


@pytest.mark.parametrize("place", ["", "tiny-imagenet-200", "zip"])
def test_folder_parent_and_zip_give_the_same(root: Path, place: str) -> None:
    zipped(root)
    train = load(root / place, "train", 8, count=3)
    assert train.classes == ("crane (n01)", "crane (n02)", "goldfish")  # by their codes, not as in wnids.txt
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert train.images[:, 0, 0, 0].tolist() == [40, 50, 80, 90, 0, 10]
    test = load(root / place, "test", 8, count=3)
    assert test.classes == train.classes
    assert test.labels.tolist() == [1, 2, 0]
    assert test.images[:, 0, 0, 0].tolist() == [210, 200, 220]


def test_images_are_resized(root: Path) -> None:
    assert load(root, "train", 5, count=3).images.shape == torch.Size([6, 3, 5, 5])


def test_class_without_a_word_keeps_its_code(root: Path) -> None:
    (root / "tiny-imagenet-200" / "words.txt").write_text("n01\tcrane\n")
    assert load(root, "test", 8, count=3).classes == ("crane", "n02", "n03")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["val_0.JPEG\tn01", "val_0.JPEG\tn02"], r"entry 2, names val_0\.JPEG twice"),
        (["val_9.JPEG\tn01"], r"entry 1, names 'val_9\.JPEG', which is not in val/images"),
        (["../../wnids.txt\tn01"], "which is not in val/images"),
        (["val_0.JPEG\tn77"], "gives class 'n77', which is not in wnids"),
        (["val_0.JPEG"], "gives class ''"),
        (["val_0.JPEG\tn01"], r"no class for val_1\.JPEG, val_2\.JPEG"),
        ([], r"no class for val_0\.JPEG"),
    ],
)
def test_wrong_annotations_are_named(root: Path, lines: list[str], reason: str) -> None:
    annotate(root / "tiny-imagenet-200", *lines)
    with pytest.raises(GcabError, match=reason):
        load(root, "test", 8, count=3)


def test_no_validation_images(root: Path) -> None:
    annotate(root / "tiny-imagenet-200")
    for path in (root / "tiny-imagenet-200" / "val" / "images").iterdir():
        path.unlink()
    with pytest.raises(GcabError, match="no class for any image"):
        load(root, "test", 8, count=3)


def test_class_without_images_is_named(root: Path) -> None:
    for path in (root / "tiny-imagenet-200" / "train" / "n02" / "images").iterdir():
        path.unlink()
    with pytest.raises(GcabError, match="no training images of n02"):
        load(root, "train", 8, count=3)


def test_a_missing_image_is_named(root: Path) -> None:
    folder = root / "tiny-imagenet-200" / "train" / "n02"
    (folder / "images" / "n02_1.JPEG").unlink()
    with pytest.raises(GcabError, match="has 1 training images of n02, but 2 of other classes: fetch"):
        load(root, "train", 8, count=3)
    (folder / "n02_boxes.txt").write_text("n02_0.JPEG\t0\t0\t5\t5\nn02_1.JPEG\t0\t0\t5\t5\n")
    with pytest.raises(GcabError, match=r"but 2 of other classes \(n02_1\.JPEG missing\)"):
        load(root, "train", 8, count=3)


def test_the_second_start_decodes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped(root)
    first = {place: load(root / place, "train", 8, count=3).images for place in ("", "zip")}
    monkeypatch.setattr("gcab.data.cache.decode_blocks", None)
    monkeypatch.setattr("gcab.data.cache.decode_many", None)
    for place, images in first.items():
        assert torch.equal(load(root / place, "train", 8, count=3).images, images)
    assert len(list((root / "tiny-imagenet-200" / ".gcab-cache").glob("train-8-*.images"))) == 1
    assert len(list((root / "zip" / ".gcab-cache").glob("train-8-*.images"))) == 1


def test_a_zip_is_opened_once_for_both_splits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, opened = zipped(root), []
    before = [load(place, split, 8, count=3) for split in SPLITS]
    tiny_imagenet._of_zip.cache_clear()  # as in another process
    whole = zipfile.ZipFile

    def spy(file: Path) -> zipfile.ZipFile:
        opened.append(file)
        return whole(file)

    monkeypatch.setattr(zipfile, "ZipFile", spy)
    after = [load(place, split, 8, count=3) for split in SPLITS]
    assert len(opened) == 1
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_wrong_annotations_are_told_before_anything_is_decoded(root: Path, kind: str) -> None:
    annotate(root / "tiny-imagenet-200", "val_1.JPEG\tn02\t0\t0\t5\t5", "val_1.JPEG\tn02\t0\t0\t5\t5")
    place = zipped(root) if kind == "zip" else root
    with pytest.raises(GcabError, match=r"entry 2, names val_1\.JPEG twice"):
        load(place, "train", 8, count=3)
    assert not [*root.rglob(".gcab-cache")]


def test_another_image_in_the_zip_is_seen(root: Path) -> None:
    place = zipped(root)
    load(place, "train", 8, count=3)
    picture(root / "tiny-imagenet-200" / "train" / "n01" / "images" / "n01_0.JPEG", 222)
    (place / "tiny-imagenet-200.zip").rename(place / "old.zip")
    (place / "old.zip").unlink()
    (place / ".gcab-cache").rename(root / "cache")
    place.rmdir()
    place = zipped(root)
    (root / "cache").rename(place / ".gcab-cache")
    assert load(place, "train", 8, count=3).images[0].unique().tolist() == [222]


def test_the_authors_order_has_every_class_once() -> None:
    assert sorted(DATASET.order or ()) == list(range(200))
    assert (DATASET.order or ())[:4] == (165, 58, 126, 55)
    assert resolve("tiny-imagenet/10", "gcab").scenario.order == "paper"


def test_wrong_list_of_classes(root: Path) -> None:
    with pytest.raises(GcabError, match="must name 200 different classes"):
        load(root, "train", 8)
    (root / "tiny-imagenet-200" / "wnids.txt").write_text("n01\nn01\nn02\n")
    with pytest.raises(GcabError, match="must name 3 different classes"):
        load(root, "train", 8, count=3)
    (root / "tiny-imagenet-200" / "wnids.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GcabError, match="not UTF-8"):
        load(root, "train", 8, count=3)


def test_missing_words(root: Path) -> None:
    (root / "tiny-imagenet-200" / "words.txt").unlink()
    with pytest.raises(GcabError, match=r"words\.txt is missing"):
        load(root, "train", 8, count=3)


def test_places_without_the_data(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match=r"holds neither tiny-imagenet-200/ nor tiny-imagenet-200\.zip"):
        load(tmp_path, "train", 8)
    with pytest.raises(GcabError, match="does not exist"):
        load(tmp_path / "nowhere", "train", 8)
    with pytest.raises(GcabError, match="name it as the root"):
        load(None, "train", 8)
    (tmp_path / "file").touch()
    with pytest.raises(GcabError, match="is a file"):
        load(tmp_path / "file", "train", 8)


@pytest.mark.parametrize("name", ["tiny-imagenet-200/../../evil", "/evil", "..\\evil"])
def test_zip_that_leads_elsewhere_is_refused(root: Path, name: str) -> None:
    with pytest.raises(GcabError, match=r"evil', which leads out of it"):
        load(zipped(root, **{name: "x"}), "train", 8, count=3)


def test_damaged_zip(root: Path) -> None:
    target = zipped(root)
    archive = target / "tiny-imagenet-200.zip"
    content = archive.read_bytes()
    pixels = content.replace(b"\xff\xd8\xff\xe0", b"harm")  # how a JPEG starts; stored as it is
    header = re.sub(rb"train/(\w+/images/\w+\.JPEG)", b"tr\xdf\x97n/\\1", content, count=1)  # zipfile would repeat it
    for damaged in (pixels, header):
        archive.write_bytes(damaged)
        with pytest.raises(GcabError, match=r"^[ -~]+JPEG is damaged: fetch the archive again\.$"):
            load(target, "train", 8, count=3)
    archive.write_bytes(content[:100])
    with pytest.raises(GcabError, match="not a readable zip"):
        load(target, "train", 8, count=3)


def test_zip_member_of_absurd_size_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcab.data.archive.LARGEST_MEMBER", 1000)
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny-imagenet-200/wnids.txt", "n01\n" * 1000)
    with pytest.raises(GcabError, match="claims 4000 bytes"):
        load(tmp_path, "train", 8)
