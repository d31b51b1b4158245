"""Rank, world size and collectives of `torch.distributed`; a world of one where no process group was joined.

K processes share the global batch: rank r takes its rows r, r + K, r + 2K, ... Every random draw for images is made
for the whole global batch on every rank, from the same generator, and each takes its rows of it: an image's draws do
not depend on K. Rows with a stride stay right when two batches are concatenated, as replay does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TypeVar

import torch
from torch import Tensor, distributed

T = TypeVar("T")


def grouped() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def rank() -> int:
    return distributed.get_rank() if grouped() else 0


def world() -> int:
    return distributed.get_world_size() if grouped() else 1


def rows(batch: Tensor) -> Tensor:
    """This process's rows of something that has one for each image of the global batch."""
    return batch[rank() :: world()]


def uniform(images: int, *shape: int, device: torch.device) -> Tensor:
    """Random numbers from 0 to 1 for each of this process's images: (images, *shape)."""
    return rows(torch.rand(images * world(), *shape, device=device))


def normal(images: int, *shape: int, device: torch.device) -> Tensor:
    """Standard normal numbers for each of this process's images: (images, *shape)."""
    return rows(torch.randn(images * world(), *shape, device=device))


def gathered(own: Tensor) -> Tensor:
    """All-gather: the rows of all processes in the order of the global batch."""
    if world() == 1:
        return own
    parts = [torch.empty_like(own) for _ in range(world())]
    distributed.all_gather(parts, own.contiguous())
    return torch.stack(parts, dim=1).flatten(0, 1)


def whole_norm(part: Tensor) -> Tensor:
    """The L2 norm of a tensor that is sharded over the ranks, from the norm of this rank's part."""
    if world() == 1:
        return part
    own = part.clone()
    if own.requires_grad:
        # Every rank's loss depends on this part, but only this rank knows its gradient, and gradients are averaged.
        own.register_hook(lambda gradient: gradient * world())
    parts = [torch.empty_like(part) for _ in range(world())]
    distributed.all_gather(parts, part.detach())
    parts[rank()] = own
    return torch.linalg.vector_norm(torch.stack(parts))


def mean(values: Tensor) -> Tensor:
    """The mean over the ranks, the same on all."""
    if world() > 1:
        values = values.clone()
        distributed.all_reduce(values)
        values /= world()
    return values


def from_first(compute: Callable[[], T]) -> T:
    """The result of the first process, broadcast to all."""
    if world() == 1:
        return compute()
    box = [compute() if rank() == 0 else None]
    distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]  # type: ignore[return-value]


def shared_work(function: Callable[[Tensor], Tensor], parts: Sequence[Tensor]) -> list[Tensor]:
    """Map a function over parts that are spread over the ranks; every rank gets all results, in order."""
    own = [function(part) for part in parts[rank() :: world()]]
    if world() == 1:
        return own
    of_ranks: list[list[Tensor]] = [[] for _ in range(world())]
    distributed.all_gather_object(of_ranks, own)
    return [result for turn in zip_longest(*of_ranks) for result in turn if result is not None]


def make_equal(tensors: Iterable[Tensor]) -> None:
    """Broadcast the first process's tensors into those of all others."""
    if world() > 1:
        for tensor in tensors:
            distributed.broadcast(tensor, src=0)


@contextmanager
def one_goes_ahead(ahead: bool) -> Iterator[None]:
    """A context manager that lets the `ahead` processes run first, so that the others find their files on disk."""
    if not ahead:
        mean(torch.zeros(()))
    yield
    if ahead:
        mean(torch.zeros(()))
