"""bfloat16 copies of the weights, all made at once.

`torch.autocast` gives the same values, but casts every weight by itself in every block at every step, and every
gradient back: hundreds of small kernels.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Place = tuple[nn.Module, str]  # a module and the name of a parameter of its own


class CastAll(torch.autograd.Function):
    """Weights to bfloat16, their gradients back to float32."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # a missing gradient stays None instead of zeros
        return tuple(cast_all(weights, torch.bfloat16))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ARG004
        full = iter(cast_all([gradient for gradient in gradients if gradient is not None], torch.float32))
        return tuple(None if gradient is None else next(full) for gradient in gradients)


def cast_all(tensors: Sequence[Tensor], kind: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=kind) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return copies


def linear_weights(module: nn.Module) -> list[Place]:
    """The owning module and attribute name of every linear layer's weight and bias."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    return [(layer, name) for layer in layers for name, _ in layer.named_parameters(recurse=False)]


def weight_at(place: Place) -> Tensor:
    module, name = place
    return getattr(module, name)


def lowered(places: Sequence[Place]) -> list[tuple[Place, Tensor]]:
    """bfloat16 copies of frozen weights."""
    return list(zip(places, cast_all([weight_at(place).detach() for place in places], torch.bfloat16), strict=True))


class LowPrecision:
    """bfloat16 copies of what `torch.autocast` would cast of linear layers; frozen weights are cast only once."""

    def __init__(self, module: nn.Module) -> None:
        self.learning = [place for place in linear_weights(module) if weight_at(place).requires_grad]
        self.fixed = lowered([place for place in linear_weights(module) if not weight_at(place).requires_grad])

    @contextmanager
    def of_learning(self) -> Iterator[None]:
        """Casts them now, so that the gradients of this step pass through the cast."""
        copies = CastAll.apply(*map(weight_at, self.learning))  # type: ignore[no-untyped-call]
        with exchanged(list(zip(self.learning, copies, strict=True))):
            yield


@contextmanager
def exchanged(copies: Sequence[tuple[Place, Tensor]]) -> Iterator[None]:
    """A context manager in which the modules use the bfloat16 copies."""
    held = [module._parameters[name] for (module, name), _ in copies]
    for (module, name), copy in copies:
        module._parameters[name] = copy  # type: ignore[assignment]
    try:
        yield
    finally:
        for ((module, name), _), parameter in zip(copies, held, strict=True):
            module._parameters[name] = parameter
