"""The eye: a fixed, untrained way to see, the same for everybody, and an exact linear classifier on top of it.

Not in the paper. An image is compared with a few thousand small filters; where and how strongly it resembles them are
its features. The filters are whitened patches of public photos (`benchmarks/make_eye.py`), a constant of the program:
no training image has any part in them. All arithmetic is in whole numbers, so that features and their sums are the
same on every machine, in any order, to the last bit.

Legend: x = an image's features (F whole numbers), y = its class as a one-hot vector, n = number of images,
G = Σ x xᵀ (F, F), S = Σ y xᵀ (classes, F).
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import resources
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.errors import GcabError
from gcab.model.rows import drop_row
from gcab.model.triangle import packed, unpacked

VERSION = 1  # of the filters and of all constants below: features of different versions must not be added
SIDE = 32  # pixels to which every image is brought
SMALL_SIDE = 16  # the same for images that are no larger than this
CELLS = 2  # per side: where in the image a filter answers
SIGNS = 2  # a filter's positive and its negative answers
FLAT = 10.0  # a deviation of brightness (of 255) below which a patch counts as flat
THRESHOLD = 0.5  # weaker answers count as none
STEPS = 32  # of an answer from 0 to 1
LEVELS = 128  # of a feature from 0 to 1
PER_FILTER = SIGNS * CELLS**2
SHARES = {6: 2, 4: 1, 9: 1}  # patch size -> its share of the filters
MULTIPLE = PER_FILTER * sum(SHARES.values())
CHUNK = 10  # images seen at once on a processor: more do not fit its cache
SUMMED = 500  # images whose products are added up at once
PROBES = 32  # random vectors that estimate a trace


Watch = Callable[[float], None]  # told the share of a piece of work that is done


class Bank(NamedTuple):
    """Filters of one patch size."""

    kernels: Tensor  # (K, 3, P, P), whole numbers that add up to 0
    scales: Tensor  # (K,): what turns their answers into multiples of a standard deviation


@cache
def filters() -> dict[int, Bank]:
    """Every filter there is, by patch size, the most often used ones first."""
    found = {}
    with resources.as_file(resources.files("gcab.model") / "eye.npz") as file, np.load(file) as stored:
        for size in SHARES:
            kernels, scales = (torch.from_numpy(stored[f"{name}{size}"]) for name in ("kernels", "scales"))
            found[size] = Bank(kernels.float(), scales)
    return found


def features_for(image_size: int, features: int) -> int:
    """How many of these features images of a size have: those seen at half the side have a quarter."""
    return features if image_size > SMALL_SIDE else -(-features // (4 * MULTIPLE)) * MULTIPLE


def most_features() -> int:
    return MULTIPLE * min(len(filters()[size].kernels) // share for size, share in SHARES.items())


class Eye(nn.Module):
    """From images to features; nothing in it is learned, and nothing of it is stored with a model."""

    def __init__(self, features: int) -> None:
        super().__init__()
        if not 0 < features <= most_features() or features % MULTIPLE:
            raise GcabError(
                f"the eye cannot have {features} features: give a multiple of {MULTIPLE} up to {most_features()}."
            )
        self.features = features
        for size, share in SHARES.items():
            for name, values in filters()[size]._asdict().items():
                chosen = values[: share * features // MULTIPLE].to(torch.get_default_device(), copy=True)
                self.register_buffer(f"{name}{size}", chosen, persistent=False)

    @property
    def device(self) -> torch.device:
        return next(self.buffers()).device

    def forward(self, images: Tensor) -> Tensor:
        """Bytes (B, C, H, W) as any kind of number, to features (B, F), whole numbers as float32."""
        if not torch.compiler.is_compiling() and images.device.type == "cpu" and len(images) > CHUNK:
            return torch.cat([self(part) for part in images.split(CHUNK)])
        with in_full_precision(images.device):
            seen = as_seen(images)  # (B, groups, 3, side, side)
            answers = torch.cat([self.answers(seen.flatten(0, 1), size) for size in SHARES], dim=1)
            return (answers.unflatten(0, seen.shape[:2]).mean(dim=1).sqrt() * LEVELS).round()

    def answers(self, images: Tensor, size: int) -> Tensor:
        """How strongly each filter of a size answers in each cell, on average: (B, PER_FILTER K)."""
        kernels, scales = getattr(self, f"kernels{size}"), getattr(self, f"scales{size}")
        # Sums of products of whole numbers, below 2²⁴: rounding undoes whatever order or method they were added with.
        products = functional.conv2d(images, kernels).round_()
        z = products.div_(deviation(images, size)).mul_(STEPS * scales[:, None, None])  # in steps
        stride = z.shape[-1] // CELLS
        window = z.shape[-1] - stride * (CELLS - 1)
        cells = [slice(cell * stride, cell * stride + window) for cell in range(CELLS)]
        sums, faint = [], THRESHOLD * STEPS
        for above in (z - faint, -faint - z):
            strength = above.relu_().round_()
            parts = [strength[:, :, down, across].sum(dim=(2, 3)) for down in cells for across in cells]
            sums.append(torch.stack(parts, dim=2))  # (B, K, CELLS²)
        return torch.cat(sums, dim=1).flatten(1) / (STEPS * window**2)


def in_full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Whatever precision the caller asked for."""
    lowered = any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    return torch.autocast(device.type, enabled=False) if lowered else nullcontext()


def as_seen(images: Tensor) -> Tensor:
    """Images of any size and any number of channels as groups of three channels, (B, groups, 3, side, side)."""
    images = images.float()
    largest = max(images.shape[2:])
    side = SMALL_SIDE if largest <= SMALL_SIDE else SIDE
    if largest > side:
        images = functional.adaptive_avg_pool2d(images, side).round()
    elif images.shape[2:] != (side, side):
        images = functional.interpolate(images, (side, side), mode="bilinear", align_corners=False).round()
    channels = images.shape[1]
    if channels == 1:
        return images.expand(-1, 3, -1, -1)[:, None]
    missing = -channels % 3
    if missing:
        images = torch.cat([images, images[:, -1:].expand(-1, missing, -1, -1)], dim=1)
    return images.unflatten(1, (-1, 3))


def deviation(images: Tensor, size: int) -> Tensor:
    """Standard deviation of the pixels of each patch, (B, 1, places, places); flat patches count as a little rough."""
    pixels = 3 * size**2
    total, squares = (patch_sums(value.sum(dim=1, keepdim=True), size) for value in (images, images.square()))
    return ((pixels * squares - total.square()) / pixels**2 + FLAT**2).sqrt().float()


def patch_sums(values: Tensor, size: int) -> Tensor:
    """Whole numbers summed over every patch of a size, as doubles; below 2²⁴, so exact whatever adds them up."""
    for side in (2, 3):
        places = values.shape[side] - size + 1
        values = torch.stack([values.narrow(side, start, places) for start in range(size)]).sum(dim=0)
    return values.double()


class ExactRidge(nn.Module):
    """Ridge regression from features to classes, out of sums that forget nothing: min Σ |W x + b - y|² + r n |W|².

    The sums of all tasks are those of training on everything at once, and what was added can be taken away again.
    Features count in units of their own deviation, which the sums tell, too.
    """

    purposes: ClassVar[dict[str, str]] = {
        "gram": "eye: products of every two features, summed over all images",
        "sums": "eye: features summed over the images of each class",
        "counts": "eye: number of images in these sums, mirrored ones included",
        "weight": "eye: classifier that follows from the sums",
        "bias": "eye: classifier that follows from the sums",
    }

    gram: Tensor
    sums: Tensor
    counts: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, features: int, per_class: bool = False) -> None:
        """`per_class`: a G for every class, so that a class can be taken out without its images."""
        super().__init__()
        self.features, self.per_class = features, per_class
        triangle = features * (features + 1) // 2
        self.register_buffer("gram", torch.zeros(int(not per_class), triangle, dtype=torch.int32))  # G
        self.register_buffer("sums", torch.zeros(0, features, dtype=torch.int32))  # S
        self.register_buffer("counts", torch.zeros(0, dtype=torch.int64))  # images of each class
        self.register_buffer("weight", torch.zeros(0, features))  # W
        self.register_buffer("bias", torch.zeros(0))  # b

    def grow(self, classes: int) -> None:
        """Room for the classes of a new task."""
        for name in ("sums", "counts", "weight", "bias", *(["gram"] if self.per_class else [])):
            held = getattr(self, name)
            setattr(self, name, torch.cat([held, held.new_zeros(classes, *held.shape[1:])]))

    def forward(self, features: Tensor) -> Tensor:
        """W x + b: (B, classes)."""
        return functional.linear(features, self.weight, self.bias)

    @torch.no_grad()
    def add(self, features: "Sums") -> None:
        """Count the images of some classes in."""
        self._change(features, 1)

    @torch.no_grad()
    def remove(self, features: "Sums") -> None:
        """Count them out again: what is left is what it would have been without them."""
        if (self.counts < features.counts.to(self.counts.device)).any():
            raise GcabError("these are more images than were learned of their class: nothing can be taken out.")
        self._change(features, -1)

    def _change(self, sums: "Sums", sign: int) -> None:
        self.counts += sign * sums.counts.to(self.counts.device)
        self.sums += sign * sums.sums.to(self.sums)
        new = sums.gram.to(self.gram.device) * sign + self.gram
        self.gram = new if new.abs().max() > torch.iinfo(torch.int32).max else new.to(torch.int32)

    @torch.no_grad()
    def drop(self, label: int) -> None:
        """Take a class out; a G that it shares with others stays as it is, so its images are to be removed before."""
        drop_row(self, label, "sums", "counts", "weight", "bias", *(["gram"] if self.per_class else []))

    def in_places(self, places: Sequence[int], classes: int) -> "Sums":
        """All it knows, for another one of so many classes: `places` are those of its own among them."""
        where = torch.tensor(places, device=self.counts.device)

        def moved(rows: Tensor) -> Tensor:
            return rows.new_zeros(classes, *rows.shape[1:], dtype=torch.int64).index_add(0, where, rows.long())

        gram = moved(self.gram) if self.per_class else self.gram.long()
        return Sums(gram, moved(self.sums), moved(self.counts))

    @torch.no_grad()
    def solve(self) -> None:
        """W and b from the sums, in double precision."""
        system = self.system()
        weight = system.solved(system.towards) * system.scale[:, None]
        self.weight.copy_(weight.T)
        self.bias.copy_(system.share - system.mean @ weight)

    def system(self) -> "System":
        """The normal equations, of features in units of their deviation."""
        n, sums = int(self.counts.sum()), self.sums.double()
        share, mean = self.counts.double() / n, sums.sum(dim=0) / n
        matrix = unpacked(self.gram.sum(dim=0)).div_(n).addr_(mean, mean, alpha=-1)
        deviation = matrix.diagonal().clamp_min(0).sqrt()
        scale = torch.where(deviation > 0, 1 / deviation.clamp_min(1e-9), 0.0)  # features that never vary have no say
        r = ridge(self.features, n)
        matrix.mul_(scale).mul_(scale[:, None]).diagonal().fill_(1 + r)
        towards = (sums.T / n - mean[:, None] * share) * scale[:, None]
        return System(torch.linalg.cholesky(matrix), towards, mean, scale, share, r, n)

    @torch.no_grad()
    def expected(self, images: int = 300) -> Tensor:
        """The share of new images of each class that it should name right (classes,), as far as the sums can tell.

        Scores of a class are taken to be normal around their mean. The images that were learned fit too well: for one
        that was left out, what is missing to its target is larger by 1 / (1 - h), with h the mean leverage.
        """
        system = self.system()
        n, share, classes = system.n, system.share, len(self.counts)
        weight = system.solved(system.towards)  # (F, classes)
        means = (self.sums.double() / self.counts.clamp_min(1)[:, None] - system.mean) * system.scale
        centres = means @ weight  # of the scores of each class, without b
        spread = weight.T @ (system.towards - system.r * weight) - (centres.T * share) @ centres
        random = torch.Generator().manual_seed(0)
        signs = torch.randint(2, (self.features, PROBES), generator=random).double().mul_(2).sub_(1).to(weight.device)
        trace = float((signs * system.solved(signs)).sum() / PROBES)
        leverage = (int((system.scale > 0).sum()) - system.r * trace + 1) / n
        targets = torch.eye(classes, dtype=torch.float64, device=weight.device)
        values, vectors = torch.linalg.eigh(spread)
        noise = torch.randn(images, classes, generator=random, dtype=torch.float64).to(weight.device)
        noise = (noise * values.clamp_min(0).sqrt()) @ vectors.T
        missing = (targets - centres - share)[:, None] + noise  # (classes, images, classes)
        scores = targets[:, None] - missing / max(1 - leverage, 1e-3)
        right = scores.argmax(dim=2) == torch.arange(classes, device=weight.device)[:, None]
        return right.double().mean(dim=1)

    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        """Sums too large for 32 bits were stored with more."""
        stored = state_dict.get(f"{prefix}gram")
        if stored is not None:
            self.gram = self.gram.to(stored.dtype)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class System(NamedTuple):
    """(M + r) W = towards, where M is the correlation of the features."""

    factor: Tensor  # Cholesky's, of M + r
    towards: Tensor  # (F, classes)
    mean: Tensor  # of the features
    scale: Tensor  # 1 / deviation
    share: Tensor  # of each class in all images
    r: float
    n: int

    def solved(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right, self.factor)


class EyeClassifier(nn.Module):
    """An eye and what it has learned."""

    def __init__(self, features: int, mirrored: bool, per_class: bool = False) -> None:
        """`mirrored`: a mirrored image means the same, so both are learned from."""
        super().__init__()
        self.mirrored, self.eye, self.ridge = mirrored, Eye(features), ExactRidge(features, per_class)

    def forward(self, pixels: Tensor) -> Tensor:
        """Bytes (B, C, H, W) as any kind of number, to scores (B, classes), about 1 for the class and 0 for others."""
        with in_full_precision(pixels.device):
            return self.ridge(self.eye(pixels))

    def sums(self, images: Tensor, labels: Tensor, watch: Watch = lambda _: None) -> "Sums":
        """What images as bytes add to all that was learned."""
        ridge = self.ridge
        return summed(self.eye, images, labels, len(ridge.counts), ridge.per_class, self.mirrored, watch)

    def taught(self, images: Tensor, labels: Tensor, watch: Watch = lambda _: None) -> ExactRidge:
        """What it would know with these images, too; it does not change."""
        ridge = copy.deepcopy(self.ridge)
        ridge.add(self.sums(images, labels, watch))
        ridge.solve()
        return ridge

    @torch.no_grad()
    def forget(self, label: int, images: Tensor | None = None) -> None:
        """Take a class out. With its images, or with sums by class, nothing of it is left; else its part in G is."""
        if images is not None and not self.ridge.per_class:
            learned, counted = self.learned_of(label, images), int(self.ridge.counts[label])
            sums = self.sums(learned, torch.full((len(learned),), label)) if len(learned) else None
            if sums is None or sums.counts[label] != counted or (sums.sums[label] != self.ridge.sums[label]).any():
                raise GcabError(
                    "these photos do not add up to what was learned of the class, as some are missing or have changed: "
                    "give all of them; nothing was forgotten."
                )
            self.ridge.remove(sums)
        self.ridge.drop(label)
        self.ridge.solve()

    def learned_of(self, label: int, images: Tensor) -> Tensor:
        """Those of the images that a class was learned from, without others that may be among them.

        Its sums tell: Σ z x = S has one solution z where there are no more images than features.
        """
        if len(images) * (1 + self.mirrored) == int(self.ridge.counts[label]):
            return images
        parts = [views(part.to(self.eye.device), self.mirrored) for part in images.split(CHUNK)]
        x = torch.cat([torch.stack([self.eye(view).double() for view in part]).sum(dim=0) for part in parts])
        x, places = x.unique(dim=0, return_inverse=True)  # of equal images some may have been learned
        times = (torch.linalg.pinv(x @ x.T, hermitian=True) @ (x @ self.ridge.sums[label].double())).round().tolist()
        chosen = []
        for place in places.tolist():
            chosen.append(times[place] > 0)
            times[place] -= 1
        return images[torch.tensor(chosen)]

    def counts(self) -> list[int]:
        """Images learned of each class."""
        return [count // (1 + self.mirrored) for count in self.ridge.counts.tolist()]


def views(images: Tensor, mirrored: bool) -> tuple[Tensor, ...]:
    """What is learned from images: each as it is, and its mirror image where that means the same."""
    return (images, images.flip(3)) if mirrored else (images,)


class Sums(NamedTuple):
    """What some images add to an `ExactRidge`."""

    gram: Tensor  # (1 or classes, triangle) int64
    sums: Tensor  # (classes, F) int64
    counts: Tensor  # (classes,) int64


@torch.no_grad()
def summed(
    eye: Eye, images: Tensor, labels: Tensor, classes: int, per_class: bool, mirrored: bool, watch: Watch
) -> Sums:
    """The sums of images (n, C, H, W) as bytes; `mirrored`: of each and its mirror image."""
    device, size = eye.device, eye.features
    groups = [labels == label for label in range(classes)] if per_class else [torch.ones_like(labels, dtype=torch.bool)]
    sums, grams, done = torch.zeros(classes, size, dtype=torch.float64, device=device), [], 0
    for group in groups:
        gram = torch.zeros(size, size, dtype=torch.float64, device=device)  # whole numbers below 2⁵³: exact
        for some, theirs in zip(images[group].split(SUMMED), labels[group].split(SUMMED), strict=True):
            for view in views(some, mirrored):
                x = eye(view.to(device)).double()
                gram.addmm_(x.T, x)
                sums.index_add_(0, theirs.to(device), x)
            done += len(some)
            watch(done / len(images))
        grams.append(packed(gram).long())
    counts = torch.bincount(labels, minlength=classes) * (1 + mirrored)
    return Sums(torch.stack(grams), sums.long(), counts)


def ridge(features: int, images: int) -> float:
    """r, of a standardised feature's variance: more for few images or many features (chosen on held-out images)."""
    return 0.001 * max(1.0, features / 8192) + 50 / images
