"""ImageNet-100 takes exactly the classes listed and decodes them once."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gcab.config import resolve
from gcab.data import cache, imagenet100
from gcab.data.images import ImageSet, Split
from gcab.errors import GcabError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split, shade in (("train", 0), ("val", 100)):
        for label, name in enumerate(("n01", "n02", "n03")):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for index in range(2):
                image = Image.new("L", (12, 8), shade + 20 * label + 5 * index)
                image.save(folder / f"{name}_{index}.PNG")
    (tmp_path / "classes.txt").write_text("# ours\nn03\n\nn01  # first of ImageNet\n")
    return tmp_path


def load(root: Path, split: Split = "train", size: int = 8) -> ImageSet:
    return imagenet100.load(root, split, size, count=2)


def caches(root: Path) -> list[Path]:
    return sorted((root / ".gcab-cache").glob("*.images"))


def test_exactly_the_listed_classes_in_their_order(root: Path) -> None:
    train, test = load(root, "train"), load(root, "test")
    assert train.classes == test.classes == ("n03", "n01")
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert train.images[:, 0, 0, 0].tolist() == [40, 45, 0, 5]
    assert test.images[:, 0, 0, 0].tolist() == [140, 145, 100, 105]
    assert train.images.shape == (4, 3, 8, 8)


def test_second_start_reads_the_cache_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(root).images
    monkeypatch.setattr(cache, "decode_blocks", None)
    monkeypatch.setattr(cache, "decode_many", None)
    again = load(root).images
    assert torch.equal(first, again)
    again[:] = 7  # a reader that writes changes its own copy
    assert torch.equal(first, load(root).images)
    assert len(caches(root)) == 1
    assert caches(root)[0].name.startswith("train-8-")


def test_changed_images_size_or_list_are_decoded_again(root: Path) -> None:
    load(root)
    load(root, size=4)
    changed = root / "train" / "n03" / "n03_0.PNG"
    Image.new("L", (8, 8), 222).save(changed)
    os.utime(changed, ns=(1, 1))
    assert load(root).images[0].unique().tolist() == [222]
    (root / "classes.txt").write_text("n01\nn02\n")
    assert load(root).images[:, 0, 0, 0].tolist() == [0, 5, 20, 25]
    assert len(caches(root)) == 4


def test_failure_leaves_no_cache(root: Path) -> None:
    (root / "train" / "n01" / "n01_1.PNG").write_bytes(b"")
    with pytest.raises(GcabError, match=r"n01_1\.PNG is empty"):
        load(root)
    assert caches(root) == []


def test_place_that_takes_no_cache_still_works(root: Path) -> None:
    (root / ".gcab-cache").write_text("in the way")
    assert load(root).images[:, 0, 0, 0].tolist() == [40, 45, 0, 5]


def test_full_disk_gets_no_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    assert load(root).images[:, 0, 0, 0].tolist() == [40, 45, 0, 5]
    assert caches(root) == []


def test_the_authors_order_is_numpys() -> None:
    expected = np.random.RandomState(1993).permutation(100).tolist()
    assert list(imagenet100.DATASET.order or ()) == expected
    assert resolve("imagenet100/10", "gcab").scenario.order == "paper"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n01\n", r"must name 2 different classes but names 1 \(1 different\)"),
        ("n01\nn01\n", r"names 2 \(1 different\)"),
        ("n01\nn09\n", "lacks the folders of n09"),
        ("n01\n../train/n02\n", r"not paths such as \.\./train/n02"),
        ("n01\n..\n", "not paths"),
    ],
)
def test_wrong_list(root: Path, text: str, reason: str) -> None:
    (root / "classes.txt").write_text(text)
    with pytest.raises(GcabError, match=reason):
        load(root)


def test_missing_list_root_and_images(root: Path) -> None:
    for path in (root / "train" / "n01").iterdir():
        path.unlink()
    with pytest.raises(GcabError, match="has no images of n01"):
        load(root)
    shutil.rmtree(root / "val" / "n03")
    with pytest.raises(GcabError, match="val' lacks the folders of n03"):
        load(root, "test")
    (root / "classes.txt").unlink()
    with pytest.raises(GcabError, match=r"classes\.txt' is missing: write the 100"):
        imagenet100.load(root, "train", 8)
    with pytest.raises(GcabError, match="does not exist"):
        load(root / "nowhere")
