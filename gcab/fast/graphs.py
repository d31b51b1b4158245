"""CUDA graphs: work recorded once and replayed without the host launching its kernels."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

WARM_UP = 3  # runs before recording


def recorded_step(
    work: Callable[[], None], tensors: Sequence[Tensor], optimiser: torch.optim.Optimizer
) -> Callable[[], None]:
    """A step of the optimiser as one CUDA graph, if it is on a GPU; `tensors` are all that it changes."""
    device = tensors[0].device
    if device.type != "cuda":
        return work
    with SideStream(device), unchanged(tensors, optimiser):
        for _ in range(WARM_UP):
            work()
    return record(work)


def record(work: Callable[[], None], random: torch.Generator | None = None) -> Callable[[], None]:
    """Record work as a CUDA graph, with the generator that it draws from; the returned call runs it."""
    graph = torch.cuda.CUDAGraph()
    if random is not None:
        graph.register_generator_state(random)
    with torch.cuda.graph(graph):
        work()
    return graph.replay


class SideStream:
    """A context manager for a CUDA side stream, forked where it is made; on a CPU the work runs in order."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(device))

    def __enter__(self) -> None:
        self.context = torch.cuda.stream(self.stream)
        self.context.__enter__()

    def __exit__(self, *error: object) -> None:
        self.context.__exit__(*error)
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


def on_side_stream(device: torch.device, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """While a CUDA graph is recorded, start work on a side stream; the returned call waits for what comes out."""
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        return work
    main, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        result = work()

    def wait() -> Tensor:
        main.wait_stream(side)
        return result

    return wait


@contextmanager
def unchanged(tensors: Sequence[Tensor], optimiser: torch.optim.Optimizer) -> Iterator[None]:
    """A context manager that restores tensors and optimiser state in place on exit, and drops gradients."""
    saved = [tensor.detach().clone() for tensor in tensors]
    remembered = {
        parameter: {key: value.clone() for key, value in state.items() if isinstance(value, Tensor)}
        for parameter, state in optimiser.state.items()
    }
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(tensors, saved, strict=True):
                tensor.copy_(before)
            for parameter, state in optimiser.state.items():
                restore(state, remembered.get(parameter, {}))
        optimiser.zero_grad(set_to_none=True)


def restore(state: dict[str, Any], before: dict[str, Tensor]) -> None:
    """Restore an optimiser's state of one parameter, to zeros where it had none."""
    for key, value in state.items():
        if isinstance(value, Tensor):
            value.copy_(before[key]) if key in before else value.zero_()


def recordable_rate(lr: float, device: torch.device) -> float | torch.Tensor:
    """The learning rate as a tensor on the GPU, which a recorded step reads; a float elsewhere."""
    return torch.tensor(lr, device=device) if device.type == "cuda" else lr


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate; in place where it is a tensor, so that a recorded step sees it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def restore_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state but keep the learning-rate tensors on the device, where a recorded step reads them."""
    rates = [group["lr"] for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate
