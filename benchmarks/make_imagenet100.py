"""Write photos of ImageNet-100's number and size where no copy of it can be had: classes a network can tell apart.

    python benchmarks/make_imagenet100.py OUT --train 1300 --test 50      # OUT/train, OUT/val, OUT/classes.txt

Each class has two colours, a direction and a width of its stripes; each photo has its own place, light, blur and noise.
The same seed writes the same pixels. `gcab train imagenet100/10 --data OUT` reads them.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

QUALITY = 92
COARSE = 4  # pixels of the photo to one of its drawing


def photo(seed: int, label: int, index: int) -> Image.Image:
    """One photo, about 400 x 350 pixels, some of them upright."""
    of_class, own = np.random.default_rng([seed, label]), np.random.default_rng([seed, label, index])
    colours = of_class.uniform(0.1, 0.9, (2, 3))
    direction, width = of_class.uniform(0, np.pi), of_class.uniform(6, 22)
    columns, rows = (int(side) // COARSE for side in (own.integers(360, 440), own.integers(315, 385)))
    if own.random() < 0.3:
        columns, rows = rows, columns
    y, x = np.mgrid[:rows, :columns]
    turned = direction + own.normal(0, 0.08)
    along = x * np.cos(turned) + y * np.sin(turned)
    stripes = 0.5 + 0.5 * np.sin(2 * np.pi * along / width + own.uniform(0, 2 * np.pi))
    centre = own.uniform(0.3, 0.7, 2) * (rows, columns)
    inside = np.exp(-((y - centre[0]) ** 2 + (x - centre[1]) ** 2) / (2 * (0.35 * rows) ** 2))
    share = (stripes * inside)[..., None]
    picture = (share * colours[0] + (1 - share) * colours[1]) * own.uniform(0.7, 1.2)
    picture += own.normal(0, 0.06, picture.shape)
    small = Image.fromarray(np.uint8(np.clip(picture, 0, 1) * 255))
    large = small.resize((columns * COARSE, rows * COARSE), Image.Resampling.BICUBIC)
    return large.filter(ImageFilter.GaussianBlur(own.uniform(0, 1.5)))


def write_class(out: Path, split: str, label: int, count: int, seed: int) -> int:
    """All photos of a class in one split; the bytes they take."""
    folder = out / split / f"class-{label:03d}"
    folder.mkdir(parents=True, exist_ok=True)
    first = 0 if split == "train" else 1_000_000  # no photo is in both splits
    total = 0
    for index in range(count):
        file = folder / f"{index:05d}.jpg"
        photo(seed, label, first + index).save(file, quality=QUALITY)
        total += file.stat().st_size
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--classes", type=int, default=100, help="(100)")
    parser.add_argument("--train", type=int, default=1300, help="photos of each class to learn from (1300)")
    parser.add_argument("--test", type=int, default=50, help="photos of each class to test on (50)")
    parser.add_argument("--seed", type=int, default=1, help="(1)")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    names = [f"class-{label:03d}\n" for label in range(given.classes)]
    (given.out / "classes.txt").write_text("".join(names))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        parts = [
            pool.submit(write_class, given.out, split, label, count, given.seed)
            for label, (split, count) in product(range(given.classes), (("train", given.train), ("val", given.test)))
        ]
        total = sum(part.result() for part in parts)
    photos = given.classes * (given.train + given.test)
    print(f"{photos} photos of {given.classes} classes, {total / photos / 1e3:.0f} kB each, in {given.out}")


if __name__ == "__main__":
    main()
