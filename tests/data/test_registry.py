"""The table of data sets agrees with the data sets, and the digits need nothing from disk."""

import pytest
import torch

from gcab.data.registry import DATASETS, dataset
from gcab.errors import GcabError


def test_every_entry_is_found_by_its_name() -> None:
    assert sorted(DATASETS) == [
        "cifar10",
        "cifar100",
        "digits",
        "fashion-mnist",
        "folder",
        "imagenet100",
        "mnist",
        "tiny-imagenet",
    ]
    for name, entry in DATASETS.items():
        assert dataset(name) is entry
        assert entry.name == name
        assert all(0 < value < 1 for value in entry.mean + entry.std)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(GcabError, match="unknown data set 'cifar-100': did you mean 'cifar100'"):
        dataset("cifar-100")


@pytest.mark.parametrize("name", [name for name, entry in DATASETS.items() if entry.needs_root])
def test_root_is_asked_for_where_it_is_needed(name: str) -> None:
    entry = DATASETS[name]
    with pytest.raises(GcabError, match=f"data set '{name}' needs the folder"):
        entry.load(None, "train", entry.size)


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_says_what_it_needs_and_where_it_is(name: str) -> None:
    assert DATASETS[name].needs
    published = name not in ("folder", "digits")
    assert DATASETS[name].address.startswith("http") == published


def test_digits_are_divided_evenly_and_completely() -> None:
    from sklearn.datasets import load_digits

    entry = dataset("digits")
    train, test = entry.load(None, "train", entry.size), entry.load(None, "test", entry.size)
    assert train.classes == test.classes == tuple("0123456789")
    assert len(train.classes) == entry.classes
    assert train.images.shape[1:] == (3, 8, 8)
    share = test.labels.bincount() / (test.labels.bincount() + train.labels.bincount())
    assert (share - 0.2).abs().max() < 0.01
    everything = torch.cat([train.images, test.images])[:, 1].flatten(1)  # (n, 64)
    expected = torch.from_numpy(load_digits().data * 255 / 16).round().to(torch.uint8)
    assert sorted(everything.tolist()) == sorted(expected.tolist())


def test_digits_match_their_constants() -> None:
    entry = dataset("digits")
    images = torch.cat([entry.load(None, split, 8).images for split in ("train", "test")]).double() / 255
    assert images.mean().item() == pytest.approx(entry.mean[0], abs=1e-3)
    assert images.std().item() == pytest.approx(entry.std[0], abs=1e-3)
    assert images.max() == 1


def test_digits_are_always_the_same_and_resize() -> None:
    entry = dataset("digits")
    assert torch.equal(entry.load(None, "test", 8).images, entry.load(None, "test", 8).images)
    assert entry.load(None, "test", 16).images.shape[1:] == (3, 16, 16)
