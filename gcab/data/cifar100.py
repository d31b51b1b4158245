"""CIFAR-100 in its published Python form: 50,000 and 10,000 images of 32x32 pixels in 100 classes."""

from pathlib import Path

from gcab.data.cifar_files import Release, image_set, read_table, release_folder
from gcab.data.dataset import Dataset
from gcab.data.images import ImageSet, Split
from gcab.sizes import Size

FOLDER = "cifar-100-python"
# The authors' class order 1.
ORDER = (
    *(87, 0, 52, 58, 44, 91, 68, 97, 51, 15, 94, 92, 10, 72, 49, 78, 61, 14, 8, 86, 84, 96, 18, 24, 32),
    *(45, 88, 11, 4, 67, 69, 66, 77, 47, 79, 93, 29, 50, 57, 83, 17, 81, 41, 12, 37, 59, 25, 20, 80, 73),
    *(1, 28, 6, 46, 62, 82, 53, 9, 31, 75, 38, 63, 33, 74, 27, 22, 36, 3, 16, 21, 60, 19, 70, 90, 89),
    *(43, 5, 42, 65, 76, 40, 30, 23, 85, 2, 95, 56, 48, 71, 64, 98, 13, 99, 7, 34, 55, 54, 26, 35, 39),
)


PUBLISHED = Release(
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    archive="eb9058c3a382ffc7106e4002c42a8d85",
    files={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)


def load(root: Path | None, split: Split, size: Size, release: Release = PUBLISHED) -> ImageSet:
    """Read one split from `root`, after fetching the archive into it where the files are missing."""
    folder = release_folder(root, "cifar100", FOLDER, "cifar-100-python.tar.gz", release)
    content = read_table(folder / split, release.files[split])
    meta = read_table(folder / "meta", release.files["meta"])
    return image_set(
        [content], b"fine_labels", meta, b"fine_label_names", size, f"'{folder}' does not hold CIFAR-100's arrays"
    )


DATASET = Dataset(
    name="cifar100",
    summary="CIFAR-100: 60,000 images of 32x32 pixels; fetched when missing",
    needs="an empty folder: the archive (169 MB) is fetched into it; or cifar-100-python.tar.gz or its unpacked folder",
    address=PUBLISHED.url,
    classes=100,
    size=32,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    crop="pad",
    load=load,
    tasks=(5, 10, 20),
    order=ORDER,
    preset={"scenario.order": "paper"},
)
