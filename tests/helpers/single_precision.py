"""A pretended device without double precision, as Apple's GPUs are: its tensors say `meta` and compute on the host."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

import gcab.classifier.learner
import gcab.classifier.model
import gcab.model.exact

DEVICE = torch.device("meta")
CROSSING = {"_to_copy", "copy_", "index", "index_put_", "_index_put_impl_"}  # take tensors of the host, too


class Distant(Tensor):
    """A tensor on the pretended device, and the one on the host that has its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Distant":
        make: Any = Tensor._make_wrapper_subclass
        made: Distant = make(cls, held.size(), held.stride(), held.storage_offset(), dtype=held.dtype, device=DEVICE)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return computed(function, args, kwargs or {})


class Pretence(TorchDispatchMode):
    """Every operation goes through `computed`, also those that make tensors out of nothing."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(function, args, kwargs or {})


def computed(function: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """An operation on the host, with its results where the device would have them."""
    if function._can_decompose():  # comes whole while inference mode is on
        with Pretence():  # type: ignore[no-untyped-call]
            return function.decompose(*positional, **named)
    name, asked = function.overloadpacket.__name__, named.get("device")
    given = [value for value in tree_flatten((positional, named))[0] if isinstance(value, Tensor)]
    distant = [isinstance(value, Distant) for value in given]
    if any(distant) and name not in CROSSING:
        strangers = [value for value, there in zip(given, distant, strict=True) if not there and value.dim()]
        assert not strangers, f"{name} mixes tensors of two devices"
    host, host_named = tree_map_only(Distant, lambda value: value.held, (positional, named))
    if asked is not None:
        host_named = {**host_named, "device": torch.device("cpu")}
    found = function(*host, **host_named)
    if not (any(distant) if asked is None else torch.device(asked) == DEVICE):
        return found
    if name.endswith("_") and isinstance(positional[0], Distant):
        return positional[0]

    def there(value: Tensor) -> Tensor:
        assert value.dtype != torch.float64, f"{name} makes doubles, which the device has not"
        with torch.inference_mode(False):  # or a view of it could not follow it
            return Distant(value)

    return tree_map_only(Tensor, there, found)


@contextmanager
def without_doubles(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Models are on the pretended device for the length of a block."""
    patch.setattr(gcab.model.exact, "SINGLE", ("meta",))
    for module in (gcab.classifier.learner, gcab.classifier.model):
        patch.setattr(module, "choose_device", lambda _: DEVICE)
    patch.setattr(torch, "tensor", partial(tensor, torch.tensor))
    patch.setattr(torch, "autocast", partial(autocast, torch.autocast))
    patch.setattr(sys.modules["torch.optim.adam"], "_device_dtype_check_for_fused", lambda *_, **__: None)
    try:
        with Pretence():  # type: ignore[no-untyped-call]
            yield
    finally:
        patch.undo()


def tensor(make: Callable[..., Tensor], values: Any, device: torch.device | str = "cpu", **named: Any) -> Tensor:
    """`torch.tensor` by way of the host: by itself it reaches a device past every mode."""
    return make(values, **named).to(device)


def autocast(make: Callable[..., Any], kind: str, *positional: Any, **named: Any) -> Any:
    """`torch.autocast`, which knows the devices it is for."""
    return make("cpu" if kind == DEVICE.type else kind, *positional, **named)
