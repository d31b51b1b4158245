"""Which images of a task are held out: chosen by their pixels, so that it is the same on every machine."""

import hashlib

import torch
from torch import Tensor

from gcab.errors import GcabError

FEWEST = 5  # images of a class from which some can be held out


def held_out(images: Tensor, labels: Tensor, share: float) -> Tensor:
    """True for a share of the images of every class that has enough, at least one of each: (n,)."""
    if not 0 <= share <= 0.5:
        raise GcabError(f"the share of images held out is {share}: give a number from 0 to 0.5.")
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    if share > 0:
        keys = [hashlib.sha256(image.numpy().tobytes()).digest() for image in images]
        for label in labels.unique().tolist():
            members = (labels == label).nonzero().flatten().tolist()
            if len(members) >= FEWEST:
                count = max(1, round(share * len(members)))
                chosen[sorted(members, key=keys.__getitem__)[:count]] = True
    return chosen
