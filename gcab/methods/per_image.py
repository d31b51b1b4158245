"""Per-sample gradients, vectorised over images."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

LARGEST = 2**29  # numbers in the gradients that are held at once

Objective = Callable[[Tensor, Tensor], Tensor]  # from the logits (K,) of an image and its target to a number


@torch.no_grad()
def gradients_per_image(
    network: nn.Module, weights: Mapping[str, Tensor], objective: Objective, images: Tensor, targets: Tensor
) -> Tensor:
    """∂ objective / ∂ weights of each image by itself: (B, number of weights)."""

    def value(weights: dict[str, Tensor], image: Tensor, target: Tensor) -> Tensor:
        return objective(functional_call(network, weights, (image[None],))[0], target)

    with sdpa_kernel(SDPBackend.MATH):  # the only attention that can be vectorised over images
        found = vmap(grad(value), in_dims=(None, 0, 0))(dict(weights), images, targets)
    return torch.cat([part.flatten(1) for part in found.values()], dim=1)


def chunks(count: int, weights: Mapping[str, Tensor], largest: int = LARGEST) -> Iterator[slice]:
    """Slices of `count` images whose per-sample gradients fit into memory."""
    size = max(1, largest // sum(weight.numel() for weight in weights.values()))
    return (slice(start, start + size) for start in range(0, count, size))
