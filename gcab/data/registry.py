"""The table of data sets; a new one is a file beside this with a `DATASET`, and its name in the list below."""

from collections.abc import Mapping

from gcab.data import cifar10, cifar100, digits, fashion_mnist, folder, imagenet100, mnist, tiny_imagenet
from gcab.data.dataset import Dataset
from gcab.errors import unknown

DATASETS: Mapping[str, Dataset] = {
    module.DATASET.name: module.DATASET
    for module in (cifar100, cifar10, tiny_imagenet, imagenet100, mnist, fashion_mnist, folder, digits)
}
SCENARIOS = tuple(f"{entry.name}/{tasks}" for entry in DATASETS.values() for tasks in entry.tasks)


def dataset(name: str) -> Dataset:
    """Look a data set up by the name the user typed."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]
