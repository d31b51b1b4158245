"""Linear discriminant analysis from exact sufficient statistics, to which images can be added and subtracted again.

Not in the paper. The statistics of all tasks add up to those of joint training, so nothing is forgotten.

Legend: x = an image's features (F integers), y = its class as a one-hot vector, n = number of images, n_c = those of
class c, G = Σ x xᵀ (F, F), S = Σ y xᵀ (classes, F), μ_c = S_c / n_c, Σ = the covariance of x around its μ_c.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gcab.errors import GcabError
from gcab.model import leave_one_out
from gcab.model.exact import Exact
from gcab.model.gaussians import RAREST, System
from gcab.model.lesson_cache import CachedInLesson
from gcab.model.rows import drop_row
from gcab.model.triangle import packed, unpacked

TELLING = 10  # mean number of images per class below which accuracy on new ones is not estimated (docs/log.md)


class Sums(NamedTuple):
    """Sufficient statistics of some images: what they add to an `ExactDiscriminant`."""

    gram: Tensor  # (1 or classes, triangle) int64
    sums: Tensor  # (classes, F) int64
    counts: Tensor  # (classes,) int64


class ExactDiscriminant(Exact, CachedInLesson):
    """Linear discriminant analysis with a ridge: log P(class | x) of Gaussian classes with a shared Σ.

    It keeps sums over images only, which images can be added to and subtracted from exactly. Features count in units of
    their deviation within classes, which follows from the same sums.
    """

    purposes: ClassVar[dict[str, str]] = {
        "gram": "eye: products of every two features, summed over all images",
        "sums": "eye: features summed over the images of each class",
        "counts": "eye: number of images in these sums",
        "strays": "eye: number of images in the products alone, of classes forgotten without photos",
        "weight": "eye: classifier that follows from the sums",
        "bias": "eye: classifier that follows from the sums",
    }

    gram: Tensor
    sums: Tensor
    counts: Tensor
    strays: Tensor | None
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
        self.register_buffer("strays", None)  # most models have none
        self.register_buffer("weight", torch.zeros(0, features))  # W
        self.register_buffer("bias", torch.zeros(0))  # b

    def grow(self, classes: int) -> None:
        """Append zeros for the classes of a new task."""
        for name in ("sums", "counts", "weight", "bias", *(["gram"] if self.per_class else [])):
            held = getattr(self, name)
            setattr(self, name, torch.cat([held, held.new_zeros(classes, *held.shape[1:])]))
        self.bias[len(self.bias) - classes :] = math.log(RAREST)

    def forward(self, features: Tensor) -> Tensor:
        """W x + b: (B, classes)."""
        return functional.linear(features, self.weight, self.bias)

    @torch.no_grad()
    def add(self, features: "Sums") -> None:
        """Add the statistics of new images; `solve` then updates the classifier."""
        self._change(features, 1)

    @torch.no_grad()
    def remove(self, features: "Sums") -> None:
        """Subtract the statistics of learned images, exactly: as if they had never been added."""
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
        """Delete a class's rows; a shared G is left as it is, so `remove` the class's images first."""
        drop_row(self, label, "sums", "counts", "weight", "bias", *(["gram"] if self.per_class else []))

    @torch.no_grad()
    def stray(self, label: int) -> None:
        """Take a class out of a G that it shares with others, without its images, which no class has from now on.

        What S says goes, that is where they were. How they spread around it, nothing says: that stays in Σ, so it is
        still of as many images.
        """
        count, gram = int(self.counts[label]), unpacked(self.gram.sum(dim=0))
        gram.addr_(self.sums[label].double(), self.sums[label].double(), alpha=-1 / max(1, count))
        self.gram = packed(gram.round()).to(self.gram.dtype)[None]
        self.strays = self.counts.new_tensor([self.astray + count])
        self.drop(label)

    @property
    def astray(self) -> int:
        """Images of which only the spread is left, as their class was taken out without them."""
        return 0 if self.strays is None else int(self.strays)

    @torch.no_grad()
    def join(self, label: int, other: int) -> None:
        """Merge another class into this one: the sums are those of learning both as one class."""
        for name in ("sums", "counts"):
            getattr(self, name)[label] += getattr(self, name)[other]
        if self.per_class:
            gram = self.gram.long()
            gram[label] += gram[other]
            self.gram = gram if gram[label].abs().max() > torch.iinfo(torch.int32).max else gram.to(self.gram.dtype)
        self.drop(other)
        self.solve()

    def in_places(self, places: Sequence[int], classes: int) -> "Sums":
        """Its sums laid out for `classes` classes, among which its own have the indices `places`."""
        where = torch.tensor(places, device=self.counts.device)

        def moved(rows: Tensor) -> Tensor:
            return rows.new_zeros(classes, *rows.shape[1:], dtype=torch.int64).index_add(0, where, rows.long())

        gram = moved(self.gram) if self.per_class else self.gram.long()
        return Sums(gram, moved(self.sums), moved(self.counts))

    @torch.no_grad()
    def solve(self) -> None:
        """W and b from the sums, in double precision: b_c = log (n_c / n) - γ μ_cᵀ (Σ + r)⁻¹ μ_c."""
        system = self.system()
        rule = system.rule
        weight = rule.weight * system.scale[:, None]
        self.weight.copy_(rule.shrinkage * weight.T)
        self.bias.copy_(rule.shrinkage * (rule.bias - system.mean @ weight))

    def system(self) -> System:
        """The statistics of standardised features and their Cholesky factor, cached during a lesson."""
        if self.lesson_cache is None:
            return self.factorised()
        return self.lesson_cache.solution((self.gram, self.sums, self.counts), self.factorised)

    def factorised(self) -> System:
        """`system` without the cache; takes most of the time of a lesson without a network."""
        known, sums, counts = int(self.counts.sum()), self.sums.double(), self.counts.double()
        n, mean, seen = known + self.astray, sums.sum(dim=0) / known, counts > 0
        matrix = unpacked(self.gram.sum(dim=0)).div_(n).addr_(mean, mean, alpha=-known / n)
        overall = matrix.diagonal().clone()  # variances, which count as one image more in those within classes
        means = torch.where(seen[:, None], sums / counts.clamp_min(1)[:, None] - mean, 0.0)
        matrix.addmm_((means * (counts / known)[:, None]).T, means, alpha=-known / n)
        variance = (n * matrix.diagonal() + overall).clamp_min(0) / max(1, n - int(seen.sum()) + 1)
        scale = torch.where(variance > 0, variance.clamp_min(1e-18).rsqrt(), 0.0)  # constant features get weight 0
        means.mul_(scale)
        matrix.mul_(scale).mul_(scale[:, None])
        r = ridge(self.features, n)
        matrix.diagonal().clamp_(min=0).add_(r)
        return System(torch.linalg.cholesky(matrix), means, mean, scale, counts, r, n)

    def expected(self, images: int = 300) -> Tensor | None:
        """Expected accuracy on new images of each class (classes,); None with too few images to estimate it."""
        confusion = self.confusion(images)
        return None if confusion is None else confusion.diagonal()

    def confusion(self, images: int = 300) -> Tensor | None:
        """Expected share of new images of each class (rows) predicted as each (columns); None with too few images."""
        if int(self.counts.sum()) < TELLING * len(self.counts):
            return None
        answers = leave_one_out.simulated(self.system(), images).argmax(dim=2)  # (classes, images)
        return functional.one_hot(answers, len(self.counts)).double().mean(dim=1)

    def left_out(self, features: Tensor, labels: Tensor) -> Tensor:
        """Leave-one-out scores (n, classes) of learned images, in closed form."""
        system = self.system()
        x = (features.to(self.device).double() - system.mean) * system.scale
        return leave_one_out.left_out(system, x, labels.to(self.device)).float()

    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        """Take the stored type of `gram`, int64 where sums exceeded 32 bits, and `strays` where there are some."""
        stored = state_dict.get(f"{prefix}gram")
        if stored is not None:
            self.gram = self.gram.to(stored.dtype)
        if f"{prefix}strays" in state_dict:
            self.strays = self.counts.new_zeros(1)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def ridge(features: int, images: int) -> float:
    """r, as a share of a feature's variance: larger for few images or many features (chosen on held-out images)."""
    return 0.001 * max(1.0, features / 8192) + 200 * min(1.0, math.sqrt(features / 4096)) / images
