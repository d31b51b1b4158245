"""The gradients of a step as one vector, for methods that compare, project or replace them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gcab.parallel.ranks import mean

Evaluate = Callable[[Callable[[], Tensor]], Tensor]


class Gradients:
    """Gradients of all trainable parameters, heads included, concatenated in a fixed order."""

    def __init__(self, learning: Sequence[nn.Parameter], evaluate: Evaluate) -> None:
        """`evaluate`: calls a loss under the autocast of the step."""
        self.learning, self.evaluate = learning, evaluate

    def flat(self) -> Tensor:
        """The gradient of the step in float32, zero for parameters that have none."""
        return torch.cat([flattened(parameter.grad, parameter) for parameter in self.learning])

    def of(self, loss: Callable[[], Tensor]) -> Tensor:
        """The gradient of another loss, averaged over the processes that train together."""
        with torch.enable_grad():
            found = torch.autograd.grad(self.evaluate(loss), self.learning, allow_unused=True)
        return mean(
            torch.cat([flattened(part, parameter) for part, parameter in zip(found, self.learning, strict=True)])
        )

    @torch.no_grad()
    def write(self, flat: Tensor) -> None:
        """Replace the gradient of the step."""
        parts = flat.split([parameter.numel() for parameter in self.learning])
        for parameter, part in zip(self.learning, parts, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.copy_(part.view_as(parameter))


def flattened(gradient: Tensor | None, parameter: nn.Parameter) -> Tensor:
    if gradient is None:
        return torch.zeros(parameter.numel(), device=parameter.device)
    return gradient.detach().float().flatten()
