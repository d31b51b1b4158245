"""The eye: a fixed, untrained feature extractor, the same for everybody, with an exact linear discriminant on top.

Not in the paper. Features are the thresholded and pooled responses to a few thousand small filters. The filters are
whitened patches of public photos (`benchmarks/make_eye.py`), a constant of the program: no training image has any part
in them. All sums are of integers, so that features and their sums are the same on every machine and in any order, bit
for bit.
What is learned of its features x, and the legend of G and S, is in `gcab/model/discriminant.py`.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import resources
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.errors import GcabError
from gcab.model.discriminant import ExactDiscriminant, Sums
from gcab.model.exact import Exact, at
from gcab.model.lesson_cache import CachedInLesson
from gcab.model.triangle import packed
from gcab.sizes import Size, sides

VERSION = 2  # of the filters and of all constants below: features of different versions must not be added
SIDE, SHARP_SIDE = 32, 64  # pixels a side to which images are resized; the second for photos with more detail
SMALL_SIDE = 16  # the same for images that are no larger than this
CELLS = 2  # pooling cells per side
SIGNS = 2  # the positive and the negative part of a response
FLAT = 10.0  # deviation (of 255 levels) added in quadrature to a patch's own, so that flat patches do not amplify noise
THRESHOLD = 0.5  # of a response: weaker ones count as 0
STEPS = 32  # quantisation steps of a response from 0 to 1
LEVELS = 128  # quantisation levels of a feature from 0 to 1
BRIGHTEST, CHANNELS = 255, 3  # of what is seen
PER_FILTER = SIGNS * CELLS**2
SHARES = {6: 2, 4: 1, 9: 1}  # patch size -> its share of the filters
MULTIPLE = PER_FILTER * sum(SHARES.values())
CHUNK = 10  # images of 32 pixels per chunk on a CPU: more do not fit its cache
FILTERS = 128  # at once, for the same reason
SUMMED = 500  # images per matrix product of G
BLOCK = 1024  # rows of G per matrix product


OnProgress = Callable[[float], None]  # progress callback: gets the share of the work that is done


class Bank(NamedTuple):
    """Filters of one patch size."""

    kernels: Tensor  # (K, 3, P, P), integers that sum to 0
    scales: Tensor  # (K,): factors that turn responses into multiples of their standard deviation


@cache
def filters() -> dict[int, Bank]:
    """All filters by patch size, the most often used ones first."""
    found = {}
    with resources.as_file(resources.files("gcab.model") / "eye.npz") as file, np.load(file) as stored:
        for size in SHARES:
            kernels, scales = (torch.from_numpy(stored[f"{name}{size}"]) for name in ("kernels", "scales"))
            found[size] = Bank(kernels.float(), scales)
    return found


def features_for(image_size: Size, features: int) -> int:
    """The number of features for images of a size: a quarter for those seen at half the side."""
    return features if max(sides(image_size)) > SMALL_SIDE else -(-features // (4 * MULTIPLE)) * MULTIPLE


def most_features() -> int:
    return MULTIPLE * min(len(filters()[size].kernels) // share for size, share in SHARES.items())


class FeatureExtractor(nn.Module):
    """A fixed feature extractor: from images (B, C, H, W) of 0 to 255 in any dtype to integers (B, F) in float32."""

    features: int
    at_once: ClassVar[int] = SUMMED

    @property
    def device(self) -> torch.device:
        return next(self.buffers()).device

    def unrounded(self, images: Tensor) -> Tensor:
        """Features to predict with, perhaps not rounded: only those that are summed have to be integers."""
        return self(images)


class Eye(Exact, CachedInLesson, FeatureExtractor):
    """The fixed feature extractor on any device: nothing in it is learned, and none of its buffers is saved."""

    room: ClassVar[int] = 2**28

    def __init__(self, features: int, mirrored: bool = False, side: int = SIDE, tones: int = 0) -> None:
        """`features`: of the filters, which do not see how bright an image is; `tones` of each channel tell that.

        `mirrored`: average over an image and its mirror image, so that both have the same features.
        """
        super().__init__()
        if tones and (tones < 2 or BRIGHTEST % (tones - 1) != 0):
            raise GcabError(f"the eye cannot have {tones} tones: give 0, 2, 4, 6, 16, 18, 52, 86 or 256.")
        if side not in (SIDE, SHARP_SIDE):
            raise GcabError(f"the eye cannot see images at {side} pixels: give {SIDE} or {SHARP_SIDE}.")
        if not 0 < features <= most_features() or features % MULTIPLE:
            raise GcabError(
                f"the eye cannot have {features} features: give a multiple of {MULTIPLE} up to {most_features()}."
            )
        self.features, self.mirrored, self.side, self.tones = features + CHANNELS * tones, mirrored, side, tones
        for size, share in SHARES.items():
            for name, values in filters()[size]._asdict().items():
                chosen = values[: share * features // MULTIPLE].to(torch.get_default_device(), copy=True)
                if name == "kernels":
                    chosen = chosen.contiguous(memory_format=torch.channels_last)
                self.register_buffer(f"{name}{size}", chosen, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.cached(self.compared, images.float())

    def compared(self, images: Tensor) -> Tensor:
        """`forward` without the cache, chunk by chunk on a CPU."""
        chunk = max(1, CHUNK * SIDE**2 // self.side**2)
        if not torch.compiler.is_compiling() and images.device.type == "cpu" and len(images) > chunk:
            return torch.cat([self.compared(part) for part in images.split(chunk)])
        return self.measured(images, self.answers).round()

    def measured(self, images: Tensor, answers: Callable[[Tensor, int], Tensor]) -> Tensor:
        """Features before rounding; `answers(images, size)` pools the responses to the filters of a size."""
        with in_full_precision(images.device):
            seen = as_seen(images, self.side)  # (B, groups, 3, side, side)
            views = seen.flatten(0, 1)
            strengths = torch.cat([answers(views, size) for size in SHARES], dim=2)
            if self.tones:
                shares = tone_shares(views, self.tones).expand(len(strengths), -1, -1)  # the same for mirror images
                strengths = torch.cat([strengths, shares], dim=2)
            strengths = strengths.unflatten(1, seen.shape[:2]).sum(dim=2) * (1 / seen.shape[1])  # (looks, B, F)
            return root(strengths).mean(dim=0) * LEVELS

    def answers(self, images: Tensor, size: int) -> Tensor:
        """Responses to the filters of a size, averaged over each cell, of image and mirror image: (looks, B, 8 K)."""
        looks = (images, images.flip(3)) if self.mirrored else (images,)
        return torch.stack([self.look(look, size) for look in looks])

    def look(self, images: Tensor, size: int) -> Tensor:
        """`answers` for one orientation of the images: (B, 8 K)."""
        kernels, scales = (getattr(self, f"{name}{size}").split(FILTERS) for name in Bank._fields)
        images, rough = images.contiguous(memory_format=torch.channels_last), deviation(images, size)
        sums = [pooled(images, rough, *group) for group in zip(kernels, scales, strict=True)]
        both, difference = (torch.cat(parts, dim=1) for parts in zip(*sums, strict=True))
        signs = torch.cat([both + difference, both - difference], dim=1).flatten(1)
        window = pooling_window(rough.shape[-1])
        return signs * (1 / (2 * STEPS * window**2))  # a GPU would divide less exactly


def pooled(images: Tensor, rough: Tensor, kernels: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Responses of both signs together and their difference, summed over each cell: (B, K, CELLS²) each."""
    # Sums of products of integers, below 2²⁴: rounding makes them exact whatever the order or method of summation.
    products = functional.conv2d(images, kernels).round_()
    z = products.div_(rough).mul_(STEPS * scales[:, None, None])  # in steps
    strength = functional.softshrink(z, THRESHOLD * STEPS).round_()
    difference = cell_sums(strength)
    return cell_sums(strength.abs_()), difference


def pooling_window(places: int) -> int:
    """Places along the side of a cell; cells share the middle one where the number of all is odd."""
    return places - places // CELLS * (CELLS - 1)


def cell_sums(values: Tensor) -> Tensor:
    """Integers (B, K, places, places) summed over each cell: (B, K, CELLS²), exact as they stay below 2²²."""
    places = values.shape[-1]
    window = pooling_window(places)
    means = functional.avg_pool2d(values, window, places // CELLS)
    return (means * window**2).round().flatten(2)


def in_full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Context manager that disables autocast."""
    lowered = any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    return torch.autocast(device.type, enabled=False) if lowered else nullcontext()


def as_seen(images: Tensor, side: int = SIDE) -> Tensor:
    """Images of any size and number of channels, resized, in groups of three channels: (B, groups, 3, side, side)."""
    images = images.float()
    largest = max(images.shape[2:])
    if largest <= SMALL_SIDE:
        side = SMALL_SIDE
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


def tone_shares(images: Tensor, tones: int) -> Tensor:
    """The share of the pixels that have each tone, a pixel between two tones counting for both in part: (B, 3 tones).

    Sums of integers below 2²⁴, hence exact.
    """
    apart = BRIGHTEST // (tones - 1)
    near = [(apart - (images - tone).abs()).clamp_min(0).sum(dim=(2, 3)) for tone in range(0, BRIGHTEST + 1, apart)]
    return torch.cat(near, dim=1) * (1 / (apart * images.shape[2] * images.shape[3]))


def deviation(images: Tensor, size: int) -> Tensor:
    """Standard deviation of the pixels of each patch, regularised by `FLAT`: (B, 1, places, places)."""
    pixels = 3 * size**2
    total, squares = (patch_sums(value.sum(dim=1, keepdim=True), size) for value in (images, images.square()))
    return ((pixels * squares - total.square()) / pixels**2 + FLAT**2).sqrt().float()


def root(values: Tensor) -> Tensor:
    """√ in float64, which is correctly rounded everywhere; in float32 some processors' libraries are off by a bit."""
    return values.double().sqrt().float()


def patch_sums(values: Tensor, size: int) -> Tensor:
    """Integers summed over every patch of a size, as float64; below 2²⁴, so exact in any order."""
    return neighbours(neighbours(values, 2, size), 3, size).double()


def neighbours(values: Tensor, side: int, count: int) -> Tensor:
    """Sums of so many neighbours along a side, of sums of half as many: fewer operations than to add each."""
    if count == 1:
        return values
    halves, half = neighbours(values, side, count // 2), count // 2
    places = halves.shape[side] - half
    sums = halves.narrow(side, 0, places) + halves.narrow(side, half, places)
    if count % 2:
        sums = sums.narrow(side, 0, places - 1) + values.narrow(side, count - 1, places - 1)
    return sums


class EyeClassifier(nn.Module):
    """An eye and the linear discriminant of its features."""

    def __init__(self, eye: FeatureExtractor, per_class: bool = False) -> None:
        super().__init__()
        self.eye, self.ridge = eye, ExactDiscriminant(eye.features, per_class)  # the name in model files

    def forward(self, pixels: Tensor) -> Tensor:
        """From images (B, C, H, W) of 0 to 255 in any dtype to log-probabilities (B, classes), up to a constant."""
        with in_full_precision(pixels.device):
            features = self.eye.unrounded(at(pixels, self.eye.device))
            return at(self.ridge(at(features, self.ridge.device)), pixels.device)

    def seen(self, images: Tensor) -> Tensor:
        """Features of uint8 images, on the device of the discriminant."""
        return at(self.eye(images.to(self.eye.device)), self.ridge.device)

    def sums(self, images: Tensor, labels: Tensor, watch: OnProgress = lambda _: None) -> "Sums":
        """Sufficient statistics of uint8 images."""
        return summed(self, images, labels, watch)

    def taught(self, images: Tensor, labels: Tensor, watch: OnProgress = lambda _: None) -> ExactDiscriminant:
        """A copy of the discriminant with these images added."""
        ridge = copy.deepcopy(self.ridge)
        ridge.add(self.sums(images, labels, watch))
        ridge.solve()
        return ridge

    def left_out(self, images: Tensor, labels: Tensor) -> Tensor:
        """Leave-one-out scores (n, classes) of uint8 images that were learned."""
        return self.ridge.left_out(torch.cat([self.seen(part) for part in images.split(self.eye.at_once)]), labels)

    @torch.no_grad()
    def forget(self, label: int, images: Tensor | None = None) -> None:
        """Remove a class: completely, given its images or a G per class; otherwise its share of Σ stays."""
        if images is not None and not self.ridge.per_class:
            learned, counted = self.learned_of(label, images), int(self.ridge.counts[label])
            sums = self.sums(learned, torch.full((len(learned),), label)) if len(learned) else None
            if sums is None or sums.counts[label] != counted or (sums.sums[label] != self.ridge.sums[label]).any():
                raise GcabError(
                    "these photos do not add up to what was learned of the class, as some are missing or have changed: "
                    "give all of them; nothing was forgotten."
                )
            self.ridge.remove(sums)
        if images is None and not self.ridge.per_class:
            self.ridge.stray(label)
        else:
            self.ridge.drop(label)
        self.ridge.solve()

    def learned_of(self, label: int, images: Tensor) -> Tensor:
        """Those of the images that a class was learned from.

        Σ z x = S, with z = how often each was learned, has one solution if there are no more images than features.
        """
        if len(images) == int(self.ridge.counts[label]):
            return images
        x = torch.cat([self.seen(part) for part in images.split(SUMMED)]).double()
        x, places = x.unique(dim=0, return_inverse=True)  # of equal images some may have been learned
        times = (torch.linalg.pinv(x @ x.T, hermitian=True) @ (x @ self.ridge.sums[label].double())).round().tolist()
        chosen = []
        for place in places.tolist():
            chosen.append(times[place] > 0)
            times[place] -= 1
        return images[torch.tensor(chosen)]


@torch.no_grad()
def summed(classifier: EyeClassifier, images: Tensor, labels: Tensor, watch: OnProgress) -> Sums:
    """Sufficient statistics of uint8 images (n, C, H, W), chunk by chunk."""
    ridge, at_once = classifier.ridge, classifier.eye.at_once
    device, size, classes = ridge.device, ridge.features, len(ridge.counts)
    apart = [labels == label for label in range(classes)]
    groups = apart if ridge.per_class else [torch.ones_like(labels, dtype=torch.bool)]
    sums, grams, done = torch.zeros(classes, size, dtype=torch.float64, device=device), [], 0
    for group in groups:
        gram = torch.zeros(size, size, dtype=torch.float64, device=device)  # integers below 2⁵³: exact
        for some, theirs in zip(images[group].split(at_once), labels[group].split(at_once), strict=True):
            x = classifier.seen(some)
            add_products(gram, x)
            sums.index_add_(0, theirs.to(device), x.double())
            done += len(some)
            watch(done / len(images))
        grams.append(packed(gram).long())
    return Sums(torch.stack(grams), sums.long(), torch.bincount(labels, minlength=classes))


def add_products(gram: Tensor, x: Tensor) -> None:
    """Add xᵀ x of integers x (n, F) to the lower triangle, exactly: in float32 where no sum can come near 2²⁴."""
    if x.square().sum(dim=0).max() > 2**23:  # which bounds the sum of any two features' products
        x = x.double()
    for start in range(0, x.shape[1], BLOCK):
        end = start + BLOCK
        gram[start:end, :end] += x[:, start:end].T @ x[:, :end]
