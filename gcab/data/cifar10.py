"""CIFAR-10 in its published Python form: 50,000 and 10,000 images of 32x32 pixels in 10 classes."""

from pathlib import Path

from gcab.data.cifar_files import Release, image_set, read_table, release_folder
from gcab.data.dataset import Dataset
from gcab.data.images import ImageSet, Split
from gcab.sizes import Size

FOLDER = "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
PUBLISHED = Release(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    archive="c58f30108f718f92721af3b95e74349a",
    files={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
)


def load(root: Path | None, split: Split, size: Size, release: Release = PUBLISHED) -> ImageSet:
    """Read one split from `root`, after fetching the archive into it where the files are missing."""
    folder = release_folder(root, "cifar10", FOLDER, "cifar-10-python.tar.gz", release)
    names = TRAIN if split == "train" else ("test_batch",)
    batches = [read_table(folder / name, release.files[name]) for name in names]
    meta = read_table(folder / "batches.meta", release.files["batches.meta"])
    return image_set(batches, b"labels", meta, b"label_names", size, f"'{folder}' does not hold CIFAR-10's arrays")


DATASET = Dataset(
    name="cifar10",
    summary="CIFAR-10: 60,000 images of 32x32 pixels; fetched when missing",
    needs="an empty folder: the archive (170 MB) is fetched into it; or cifar-10-python.tar.gz or its unpacked folder",
    address=PUBLISHED.url,
    classes=10,
    size=32,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    crop="pad",
    load=load,
    tasks=(5,),
    preset={"scenario.order": "sorted"},
)
