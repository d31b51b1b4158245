"""Projectors and their cascade: undoing the encoder's drift (paper, Eq. projection)."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.parallel.ranks import whole_norm, world

ProjectorKind = Literal["mlp", "normed", "residual"]
Distance = Literal["cosine", "l2", "rms"]


def make_projector(kind: ProjectorKind, tokens: int, width: int) -> nn.Module:
    """p^t: the text's two-layer MLP, the authors' with a LayerNorm over tokens and channels jointly, or ours."""
    if kind == "mlp":
        return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    if kind == "normed":
        norm = nn.LayerNorm((tokens, width))
        return nn.Sequential(nn.Linear(width, width), norm, nn.ReLU(), nn.Linear(width, width))
    return ResidualProjector(width)


class ResidualProjector(nn.Module):
    """Starts as the identity, which is the right answer when a task begins and the encoder has not yet moved.

    A projector that starts at random first drags the encoder towards itself: the features grow from task to task.
    """

    compiled = ("forward",)

    def __init__(self, width: int) -> None:
        super().__init__()
        last = nn.Linear(width, width)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.change = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), last)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.change(features)


class DriftCascade(nn.Module):
    """b^s ≈ p^{s+1}(... p^t(b^t)): maps the newest encoder's features into the space of every earlier task."""

    purposes: ClassVar[dict[str, str]] = {"": "projector: turns features of {next} back into those of {this}"}

    def __init__(self) -> None:
        super().__init__()
        self.projectors = nn.ModuleList()

    def grow(self, projector: nn.Module) -> None:
        self.projectors.requires_grad_(False)
        self.projectors.append(projector)

    @property
    def newest(self) -> nn.Module:
        return self.projectors[-1]

    def forward(self, features: Tensor) -> list[Tensor]:
        """Features of tasks 1..t, oldest first; each projector runs once."""
        spaces = [features]
        for projector in reversed(self.projectors):
            spaces.append(projector(spaces[-1]))
        return spaces[::-1]


def drift_distance(kind: Distance, projected: Tensor, target: Tensor) -> Tensor:
    """S in Eq. loss_prj: cosine distance per token (text) or the L2 norm of the whole batch tensor (authors' code).

    `rms` is that norm per element, so that one weight suits every batch, image and network size.
    """
    if kind == "cosine":
        return (1 - functional.cosine_similarity(projected.float(), target.float(), dim=-1)).mean()
    norm = whole_norm(torch.linalg.vector_norm(projected.float() - target.float()))
    return norm / (target.numel() * world()) ** 0.5 if kind == "rms" else norm


@torch.no_grad()
def relative_drift(features: Tensor, reference: Tensor) -> float:
    """How far features moved from where they were, as a share of the reference's norm, averaged over images."""
    moved = (features - reference).flatten(1).norm(dim=1)
    return float((moved / reference.flatten(1).norm(dim=1).clamp_min(1e-12)).mean())
