"""Which device to compute on."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gcab.errors import GcabError
from gcab.parallel.launch import Launch

SMALL = 2**18  # numbers in a batch's features below which synchronising threads takes longer than their work


def choose_device(name: str, launch: Launch | None = None) -> torch.device:
    """`auto` takes a GPU where there is one; asking for one that is not there is an error.

    Processes that were launched together take one GPU each.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if launch is not None and launch.world > 1 and name.startswith("cuda"):
        if name != "cuda":
            raise GcabError(
                f"device '{name}' cannot serve {launch.world} processes: give cuda, and each takes its own."
            )
        if torch.cuda.is_available() and launch.local_world > torch.cuda.device_count():
            raise GcabError(
                f"{launch.local_world} processes were started on a machine with {torch.cuda.device_count()} GPUs: "
                "start one for each GPU, or ask for cpu."
            )
        name = f"cuda:{launch.local_rank}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise GcabError(f"unknown device '{name}': give auto, cpu, cuda, cuda:N or mps.") from None
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise GcabError(
            f"device '{name}' was asked for, but torch {torch.__version__} finds no such GPU: ask for cpu instead."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise GcabError(
            f"device 'mps' was asked for, but torch {torch.__version__} finds no Apple GPU: ask for cpu instead."
        )
    if device.type not in ("cpu", "cuda", "mps"):
        raise GcabError(f"device '{name}' is not supported: give auto, cpu, cuda, cuda:N or mps.")
    return device


@contextmanager
def suitable_threads(device: torch.device, features: int) -> Iterator[None]:
    """Context manager that limits a CPU to one thread for small batches, and restores the number afterwards."""
    before = torch.get_num_threads()
    if device.type == "cpu" and features < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
