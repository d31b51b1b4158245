"""The table of data sets: what each is, how its images are normalised and how they are varied in training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gcab.data import cifar100, digits, folder, imagenet100, tiny_imagenet
from gcab.data.images import ImageSet, Split
from gcab.errors import unknown

Colour = tuple[float, float, float]
IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_STD: Colour = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Dataset:
    """All that the rest of gcab knows about a data set."""

    name: str
    summary: str
    classes: int | None  # None: known only once it is read
    size: int  # side of the images unless the user asks for another
    mean: Colour  # of channel values in 0..1
    std: Colour
    crop: Literal["pad", "resized", "none"]
    flip: bool
    needs_root: bool
    load: Callable[[Path | None, Split, int], ImageSet]


DATASETS: Mapping[str, Dataset] = {
    entry.name: entry
    for entry in (
        Dataset(
            name="cifar100",
            summary="CIFAR-100: 60,000 images of 32x32 pixels; fetched when missing",
            classes=100,
            size=32,
            mean=(0.5071, 0.4867, 0.4408),
            std=(0.2675, 0.2565, 0.2761),
            crop="pad",
            flip=True,
            needs_root=True,
            load=cifar100.load,
        ),
        Dataset(
            name="tiny-imagenet",
            summary="Tiny ImageNet: 110,000 images of 64x64 pixels, from its folder or zip",
            classes=200,
            size=64,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            crop="resized",
            flip=True,
            needs_root=True,
            load=tiny_imagenet.load,
        ),
        Dataset(
            name="imagenet100",
            summary="ImageNet-100: the classes that classes.txt names, from train/ and val/",
            classes=100,
            size=224,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            crop="resized",
            flip=True,
            needs_root=True,
            load=imagenet100.load,
        ),
        Dataset(
            name="folder",
            summary="your own images: one folder per class, or a CSV table of path,label",
            classes=None,
            size=64,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            crop="resized",
            flip=True,
            needs_root=True,
            load=folder.load,
        ),
        Dataset(
            name="digits",
            summary="scikit-learn's 1,797 handwritten digits of 8x8 pixels; nothing to fetch",
            classes=10,
            size=8,
            mean=(0.3053, 0.3053, 0.3053),
            std=(0.3760, 0.3760, 0.3760),
            crop="none",
            flip=False,
            needs_root=False,
            load=digits.load,
        ),
    )
}


def dataset(name: str) -> Dataset:
    """Look a data set up by the name the user typed."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]
