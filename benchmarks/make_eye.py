"""Make the eye's filters, gcab/model/eye.npz, from seven public photos: whitened patches, as small whole numbers.

    python benchmarks/make_eye.py PHOTOS gcab/model/eye.npz

PHOTOS has china.jpg and flower.jpg (scikit-learn, sklearn/datasets/images) and astronaut.png, chelsea.png, coffee.png,
motorcycle_left.png and rocket.jpg (scikit-image 0.26, skimage/data). docs/eye.md names their authors and licences.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from gcab.model.eye import FLAT, SHARES, SIDE

PHOTOS = ("astronaut", "chelsea", "china", "coffee", "flower", "motorcycle_left", "rocket")
HEIGHTS = np.geomspace(48, 213, 8)  # at which each photo is looked at
CROPS, PATCHES = 20_000, 200_000
WHITENING = 0.05  # added to the variance of every direction
ROUGH = 0.5  # variance, after all have been divided by their deviation, from which a patch shows anything
FILTERS = 2048  # for each share of a patch size


def crops(folder: Path, random: torch.Generator) -> Tensor:
    """Square pieces of the photos at many sizes, (n, 3, SIDE, SIDE)."""
    sized = []
    for name in PHOTOS:
        photo = Image.open(next(folder.glob(f"{name}.*"))).convert("RGB")
        for height in HEIGHTS:
            shape = max(SIDE, round(photo.width * height / photo.height)), max(SIDE, round(height))
            pixels = np.array(photo.resize(shape, Image.Resampling.LANCZOS))
            sized.append(torch.from_numpy(pixels).permute(2, 0, 1))
    found = []
    for _ in range(CROPS):
        photo_pixels = sized[int(torch.randint(len(sized), (), generator=random))]
        top, left = (int(torch.randint(side - SIDE + 1, (), generator=random)) for side in photo_pixels.shape[1:])
        found.append(photo_pixels[:, top : top + SIDE, left : left + SIDE])
    return torch.stack(found)


def patches(images: Tensor, size: int, random: torch.Generator) -> Tensor:
    """Random patches (n, 3 size²), each without its mean and of deviation 1."""
    image = torch.randint(len(images), (PATCHES,), generator=random)
    top, left = torch.randint(SIDE - size + 1, (2, PATCHES), generator=random)
    along = torch.arange(size)
    rows, columns = (top[:, None] + along)[:, :, None], (left[:, None] + along)[:, None, :]
    found = images[image[:, None, None], :, rows, columns].permute(0, 3, 1, 2).flatten(1).double()
    found -= found.mean(dim=1, keepdim=True)
    return found / (found.square().mean(dim=1, keepdim=True) + FLAT**2).sqrt()


def filters(normed: Tensor, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Whitened patches of unit length, with the whitening of what they meet folded in, as bytes that add up to 0."""
    variances, directions = torch.linalg.eigh(normed.T @ normed / len(normed))
    whitening = directions @ torch.diag((variances.clamp_min(0) + WHITENING).rsqrt()) @ directions.T
    rough = normed[normed.square().mean(dim=1) > ROUGH]
    chosen = rough[torch.randperm(len(rough), generator=random)[:count]]
    folded = functional.normalize(chosen @ whitening, dim=1) @ whitening
    folded -= folded.mean(dim=1, keepdim=True)
    scales = folded.abs().max(dim=1).values / 126
    whole = (folded / scales[:, None]).round()
    for row in whole:  # the few units by which rounding misses 0 are taken where they weigh least
        over = int(row.sum())
        row[row.abs().argsort(descending=True)[: abs(over)]] -= np.sign(over)
    assert not whole.sum(dim=1).any()
    return whole.to(torch.int8), scales.float()


def main(folder: Path, destination: Path) -> None:
    random = torch.Generator().manual_seed(0)
    images, arrays = crops(folder, random), {}
    for size, share in SHARES.items():
        kernels, scales = filters(patches(images, size, random), share * FILTERS, random)
        arrays |= {f"kernels{size}": kernels.unflatten(1, (3, size, size)).numpy(), f"scales{size}": scales.numpy()}
    np.savez_compressed(destination, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
