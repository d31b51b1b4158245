"""Choosing held-out images of a task by a hash of their pixels, which is the same on every machine."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from gcab.errors import GcabError

FEWEST = 5  # images of a class from which some can be held out
SIDE = 8  # pixels a side to which images are shrunk for comparison
NEAR = 0.25  # of the median distance within a class: images of one burst or track are nearer than that
SAMPLE = 1000  # images of a class that the median is taken over, and rows that are compared at once


def held_out(images: Tensor, labels: Tensor, share: float, apart: bool = False) -> Tensor:
    """True for a share of the images of every class that has enough, at least one of each: (n,).

    `apart`: series of near-duplicates are held out as a whole or not at all, as a neighbour would leak the answer.
    """
    if not 0 <= share <= 0.5:
        raise GcabError(f"the share of images held out is {share}: give a number from 0 to 0.5.")
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    if share > 0:
        keys = [hashlib.sha256(image.numpy().tobytes()).digest() for image in images]
        for label in labels.unique().tolist():
            members = (labels == label).nonzero().flatten().tolist()
            if len(members) >= FEWEST:
                count = max(1, round(share * len(members)))
                ordered = sorted(members, key=keys.__getitem__)
                groups = series(images, ordered) if apart else [[member] for member in ordered]
                chosen[whole_groups(groups, count) or ordered[:count]] = True
    return chosen


def alone(images: Tensor, labels: Tensor) -> Tensor:
    """True for images without a near-duplicate in their class, which would leak the answer: (n,)."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        groups = series(images, (labels == label).nonzero().flatten().tolist())
        chosen[[group[0] for group in groups if len(group) == 1]] = True
    return chosen


def whole_groups(groups: Sequence[Sequence[int]], count: int) -> list[int]:
    """The first groups with at most `count` members in all; if all are larger, the smallest if it leaves as many."""
    found: list[int] = []
    for group in groups:
        if len(found) + len(group) <= count:
            found += group
    smallest = min(groups, key=len)
    return found or (list(smallest) if 2 * len(smallest) <= sum(map(len, groups)) else [])


def series(images: Tensor, members: Sequence[int]) -> list[list[int]]:
    """Single-linkage clusters of near-duplicates (union-find), in the order of their first members."""
    small = functional.adaptive_avg_pool2d(images[list(members)].float(), SIDE).round().flatten(1).double()
    lengths, count = small.square().sum(dim=1), len(members)

    def squared(rows: Tensor, own: Tensor) -> Tensor:
        """Squared distances to all members, exact, as all numbers are integers."""
        return own[:, None] + lengths - 2 * rows @ small.T

    some = squared(small[:SAMPLE], lengths[:SAMPLE])
    usual = some[~torch.eye(*some.shape, dtype=torch.bool)].median()
    group = list(range(count))

    def first(place: int) -> int:
        while group[place] != place:
            group[place] = place = group[group[place]]
        return place

    for start in range(0, count, SAMPLE):
        rows = slice(start, start + SAMPLE)
        near = (squared(small[rows], lengths[rows]) <= NEAR**2 * usual).nonzero() + torch.tensor([start, 0])
        for one, other in near[near[:, 0] > near[:, 1]].tolist():
            low, high = sorted((first(one), first(other)))
            group[high] = low
    found: dict[int, list[int]] = {}
    for place, member in enumerate(members):
        found.setdefault(first(place), []).append(member)
    return list(found.values())
