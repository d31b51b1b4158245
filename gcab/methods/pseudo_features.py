"""Pseudo-features of classes without images: features of other classes, translated by the difference of class means.

Not in the paper. With `GcabOptions.trial` they show how the network would do on classes that have no held-out images.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gcab.data.tasks import TaskImages
from gcab.fast.folded import FoldedDecoder
from gcab.model.exact import at
from gcab.model.referee import EYE, HEADS, STATISTICS

if TYPE_CHECKING:
    from gcab.methods.opinions import Opinionated

IMAGES = 10  # of each class


@torch.no_grad()
def pseudo_opinions(
    method: "Opinionated", held_out: TaskImages, labels: Sequence[int]
) -> tuple[dict[str, Tensor], Tensor]:
    """Logits of every opinion (n, classes) for pseudo-features of other classes, and the labels of these (n,).

    Features of held-out images, the encoder's cell by cell and the eye's, are translated by the difference of two class
    means.
    """
    assert method.eye is not None, "which a trial needs"
    some = torch.linspace(0, len(held_out.labels) - 1, min(IMAGES, len(held_out.labels))).long()
    images, own = held_out.images[some], held_out.labels[some]
    tokens = method.setting.outputs(method.features, images, method.device)
    seen, ridge = method.eye.seen(images), method.eye.ridge
    means, seen_means = method.statistics.means, ridge.sums.float() / ridge.counts.clamp_min(1)[:, None]
    heads = method.heads(FoldedDecoder(method.network))
    said = {name: [tokens.new_zeros(0, len(means))] for name in (HEADS, STATISTICS, EYE)}
    for label in labels:
        moved = tokens + method.statistics.spread(means[label] - means[own]).to(tokens)
        said[HEADS].append(heads.decide(moved).float())
        said[STATISTICS].append(method.statistics(moved))
        said[EYE].append(at(ridge(seen + seen_means[label] - seen_means[own]), tokens.device))
    repeated = torch.tensor(labels, dtype=torch.long).repeat_interleave(len(own))
    return {name: torch.cat(parts) for name, parts in said.items()}, repeated
