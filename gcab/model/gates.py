"""Gates: which units of the decoder a task may use (paper, Eq. mask).

Legend: A t^T = `embeddings[t]`, s = sharpness, m^t = the gate of task t, m^{<t} = `used`.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

CERTAIN = 200.0  # an embedding from which its sigmoid is exactly 0 or 1, at any sharpness
STEEPEST = 50.0  # |se| at which the authors clamp the argument of cosh


class Gate(nn.Module):
    """One mask over `units` activations per task, for as many tasks as come."""

    purposes: ClassVar[dict[str, str]] = {
        "embeddings": "gate: which parts of the decoder are for {this}",
        "used": "gate: which parts of the decoder are taken",
    }

    used: Tensor

    def __init__(self, units: int, initial_mean: float, initial_std: float, sharpest: float) -> None:
        super().__init__()
        self.units = units
        self.initial_mean, self.initial_std = initial_mean, initial_std
        self.sharpest = sharpest  # s_max
        self.embeddings = nn.ParameterList()
        self.register_buffer("used", torch.zeros(units))

    def grow(self) -> None:
        """Add a column to A for a new task; the columns of finished tasks stop learning."""
        self.embeddings.requires_grad_(False)
        column = torch.randn(self.units) * self.initial_std + self.initial_mean
        self.embeddings.append(nn.Parameter(column.to(self.used.device)))

    def embedding(self, task: int) -> nn.Parameter:
        return self.embeddings[task]

    def soft(self, task: int, sharpness: Tensor | float) -> Tensor:
        """m^t = σ(s A t^T)."""
        return torch.sigmoid(sharpness * self.embedding(task))

    def compensated(self, task: int, sharpness: Tensor) -> Tensor:
        """The value of `soft` with HAT's compensated gradient s_max σ'(e) ∂L/∂m.

        HAT multiplies the true gradient s σ'(se) by s_max/s (cosh(se) + 1)/(cosh(e) + 1); as σ'(x) = 1/(2 + 2 cosh x),
        the product is s_max σ'(e), which stays finite where that quotient over- or underflows.
        """
        surrogate = self.sharpest * torch.sigmoid(self.embedding(task))
        return self.soft(task, sharpness).detach() + (surrogate - surrogate.detach())

    def compensated_as_published(self, task: int, sharpness: Tensor) -> Tensor:
        """The value of `soft` with the authors' gradient: HAT's quotient, with se clamped to ±50, times the true one.

        In float32 it equals `compensated` only while the gate is undecided. σ(se) is exactly 1 from se = 16.7 on, its
        slope 0; below -50 the slope keeps falling and the clamped quotient no longer compensates.
        """
        e = self.embedding(task)
        with torch.no_grad():
            steepness = (sharpness * e).clamp(-STEEPEST, STEEPEST)
            quotient = self.sharpest / sharpness * (steepness.cosh() + 1) / (e.cosh() + 1)
        scaled = quotient * e
        return torch.sigmoid(sharpness * (e.detach() + (scaled - scaled.detach())))

    def hard(self, task: int) -> Tensor:
        """The gate as zeros and ones: a unit is used when its embedding is positive."""
        return (self.embedding(task) > 0).to(self.used.dtype)

    def sharp(self, task: int) -> Tensor:
        """The gate at inference as the paper writes it: σ(s_max A t^T)."""
        return self.soft(task, self.sharpest)

    @torch.no_grad()
    def claim(self, mask: Tensor) -> None:
        """m^{<t+1} = max(m^t, m^{<t}): what a finished task uses stays used."""
        self.used.copy_(torch.maximum(self.used, mask))

    @torch.no_grad()
    def shut(self, task: int) -> None:
        """Close a task's gate on every unit."""
        self.embedding(task).fill_(-CERTAIN)

    @torch.no_grad()
    def clamp(self, task: int, limit: float) -> None:
        """Keep the embedding where the sigmoid still has a slope."""
        self.embedding(task).clamp_(-limit, limit)

    def capacity(self) -> float:
        """The share of units that finished tasks use."""
        return float(self.used.cpu().double().mean())
