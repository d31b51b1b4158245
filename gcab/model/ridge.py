"""Ridge regression out of sums that forget nothing: what was added is exact, and can be taken away again.

Not in the paper. The sums of all tasks are those of training on everything at once.

Legend: x = an image's features (F whole numbers), y = its class as a one-hot vector, n = number of images,
G = Σ x xᵀ (F, F), S = Σ y xᵀ (classes, F).
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gcab.errors import GcabError
from gcab.model.exact import Exact
from gcab.model.rows import drop_row
from gcab.model.triangle import unpacked

PROBES = 32  # random vectors that estimate a trace


class Sums(NamedTuple):
    """What some images add to an `ExactRidge`."""

    gram: Tensor  # (1 or classes, triangle) int64
    sums: Tensor  # (classes, F) int64
    counts: Tensor  # (classes,) int64


class ExactRidge(Exact):
    """Ridge regression from features to classes, out of sums that forget nothing: min Σ |W x + b - y|² + r n |W|².

    The sums of all tasks are those of training on everything at once, and what was added can be taken away again.
    Features count in units of their own deviation, which the sums tell, too.
    """

    purposes: ClassVar[dict[str, str]] = {
        "gram": "eye: products of every two features, summed over all images",
        "sums": "eye: features summed over the images of each class",
        "counts": "eye: number of images in these sums",
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

    @torch.no_grad()
    def join(self, label: int, other: int) -> None:
        """Count the images of another class as this one's: the sums are those of learning both as one class."""
        for name in ("sums", "counts"):
            getattr(self, name)[label] += getattr(self, name)[other]
        if self.per_class:
            gram = self.gram.long()
            gram[label] += gram[other]
            self.gram = gram if gram[label].abs().max() > torch.iinfo(torch.int32).max else gram.to(self.gram.dtype)
        self.drop(other)
        self.solve()

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

    def expected(self, images: int = 300) -> Tensor:
        """The share of new images of each class that it should name right (classes,), as far as the sums can tell."""
        return self.confusion(images).diagonal()

    def confusion(self, images: int = 300) -> Tensor:
        """The share of new images of each class (rows) that it should take for each (columns), from the sums."""
        answers = self.simulated(images).argmax(dim=2)  # (classes, images)
        return functional.one_hot(answers, len(self.counts)).double().mean(dim=1)

    @torch.no_grad()
    def simulated(self, images: int = 300) -> Tensor:
        """Scores that new images of each class should get, (classes, images, classes), drawn from what the sums tell.

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
        return targets[:, None] - missing / max(1 - leverage, 1e-3)

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


def ridge(features: int, images: int) -> float:
    """r, of a standardised feature's variance: more for few images or many features (chosen on held-out images)."""
    return 0.001 * max(1.0, features / 8192) + 50 / images
