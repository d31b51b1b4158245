"""Images of older classes, imitated: theirs are gone, but their class means tell where their features lie.

Not in the paper. A network on trial beside the eye (`GcabOptions.trial`) is asked about them.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gcab.data.tasks import TaskImages
from gcab.fast.folded import FoldedDecoder
from gcab.model.exact import at
from gcab.model.referee import EYE, HEADS, STATISTICS

if TYPE_CHECKING:
    from gcab.methods.gcab import Gcab

IMAGES = 10  # of each older class


@torch.no_grad()
def imitations(method: "Gcab", held_out: TaskImages, older: int) -> tuple[dict[str, Tensor], Tensor]:
    """What every opinion would be on images of the `older` classes (n, classes), and the labels of these (n,).

    They are held-out images whose features, the encoder's cell by cell and the eye's, are moved by the difference of
    two class means.
    """
    assert method.eye is not None, "which a trial needs"
    some = torch.linspace(0, len(held_out.labels) - 1, min(IMAGES, len(held_out.labels))).long()
    images, own = held_out.images[some], held_out.labels[some]
    tokens = torch.cat([method.features(part) for part in method.normalised(images)])
    seen, ridge = method.eye.seen(images), method.eye.ridge
    means, seen_means = method.statistics.means, ridge.sums.float() / ridge.counts.clamp_min(1)[:, None]
    heads = method.heads(FoldedDecoder(method.network))
    said = {name: [tokens.new_zeros(0, len(means))] for name in (HEADS, STATISTICS, EYE)}
    for label in range(older):
        moved = tokens + method.statistics.spread(means[label] - means[own]).to(tokens)
        said[HEADS].append(heads.decide(moved).float())
        said[STATISTICS].append(method.statistics(moved))
        said[EYE].append(at(ridge(seen + seen_means[label] - seen_means[own]), tokens.device))
    return {name: torch.cat(parts) for name, parts in said.items()}, torch.arange(older).repeat_interleave(len(own))
