"""The gradients of a step as one vector, for methods that compare, project or replace them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gcab.parallel.ranks import mean

Evaluate = Callable[[Callable[[], Tensor]], Tensor]


class Gradients:
    """Of all parameters that learn, in one order; heads are among them."""

    def __init__(self, learning: Sequence[nn.Parameter], evaluate: Evaluate) -> None:
        """`evaluate`: calls a loss in the precision of the step."""
        self.learning, self.evaluate = learning, evaluate

    def flat(self) -> Tensor:
        """Those of the step, in float32; a parameter without one counts as zero."""
        return torch.cat([flattened(parameter.grad, parameter) for parameter in self.learning])

    def of(self, loss: Callable[[], Tensor]) -> Tensor:
        """Those of another loss, averaged over the processes that train together."""
        with torch.enable_grad():
            found = torch.autograd.grad(self.evaluate(loss), self.learning, allow_unused=True)
        return mean(
            torch.cat([flattened(part, parameter) for part, parameter in zip(found, self.learning, strict=True)])
        )

    @torch.no_grad()
    def write(self, flat: Tensor) -> None:
        """Let the step use these instead."""
        parts = flat.split([parameter.numel() for parameter in self.learning])
        for parameter, part in zip(self.learning, parts, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.copy_(part.view_as(parameter))


def flattened(gradient: Tensor | None, parameter: nn.Parameter) -> Tensor:
    if gradient is None:
        return torch.zeros(parameter.numel(), device=parameter.device)
    return gradient.detach().float().flatten()
