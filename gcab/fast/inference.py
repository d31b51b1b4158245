"""Predictions at a server's speed: on a GPU compiled and recorded once for each size of a batch, elsewhere as they are.

Results are those of `Method.predictor()`, up to the rounding of float32 or bfloat16.
"""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gcab.data.tasks import Setting
from gcab.errors import GcabError
from gcab.fast.compiling import compiled
from gcab.fast.fused_activations import fused_activations
from gcab.fast.graphs import WARM_UP, SideStream, record
from gcab.fast.low_precision import exchanged, linear_weights, lowered

if TYPE_CHECKING:
    from gcab.methods.method import Method

LARGEST = 1024  # images at once; larger batches go in parts

Predict = Callable[[Tensor], Tensor]
Recording = tuple[Tensor, Callable[[], None], Tensor]  # where the images go, what runs, where the logits come out


def check_views(setting: Setting, views: int) -> None:
    """Validate the number of views; mirroring is refused where a mirrored image means something else."""
    if views not in (1, 2):
        raise GcabError(f"views is {views}: give 1, or 2 for an image and its mirror image.")
    if views == 2 and not setting.mirrors:
        raise GcabError("to this model a mirrored image is another thing (augment.flip is false): leave views at 1.")


def with_views(predict: Predict, setting: Setting, views: int) -> Predict:
    """Logits averaged over the views of an image: 1 is the image as it is, 2 are it and its mirror image."""
    check_views(setting, views)
    if views == 1:
        return predict

    def average(images: Tensor) -> Tensor:
        both = predict(torch.cat([images, images.flip(3)])).float()
        return both.unflatten(0, (2, -1)).mean(dim=0)

    return average


def fast_predictor(method: "Method", bfloat16: bool = False, compile_blocks: bool = False, views: int = 1) -> Predict:
    """Logits of normalised images on the method's device, for as long as the method does not learn.

    Compiling takes some seconds, on a GPU for each size of a batch, and pays where many images come.
    """
    predict = method.eval().predictor()
    module = predict if isinstance(predict, nn.Module) else method
    predict = with_views(predict, method.setting, views)
    if any(getattr(part, "on_host", False) for part in method.modules()):  # it can be neither compiled nor recorded
        return partial(predicted, predict, bfloat16)
    if method.device.type == "cuda":
        return RecordedPredictor(predict, module, bfloat16, compile_blocks)
    return partial(predicted, torch.compile(predict, dynamic=True) if compile_blocks else predict, bfloat16)


@torch.inference_mode()
def predicted(predict: Predict, bfloat16: bool, images: Tensor) -> Tensor:
    with torch.autocast(images.device.type, torch.bfloat16, enabled=bfloat16):
        return predict(images).float()


class RecordedPredictor:
    """One CUDA graph for each power of two, to which batches are padded."""

    def __init__(self, predict: Predict, module: nn.Module, bfloat16: bool, compile_blocks: bool) -> None:
        self.predict, self.module, self.bfloat16, self.compile_blocks = predict, module, bfloat16, compile_blocks
        self.weights = lowered(linear_weights(module)) if bfloat16 else []
        self.recordings: dict[int, Recording | None] = {}  # by the size of a batch; None: recording failed

    def __call__(self, images: Tensor) -> Tensor:
        return torch.cat([self.replay(part) for part in images.split(LARGEST)])

    def replay(self, images: Tensor) -> Tensor:
        size = 1 << (len(images) - 1).bit_length()
        if size not in self.recordings:
            self.recordings[size] = self.try_to_record(images.new_zeros(size, *images.shape[1:]))
        recording = self.recordings[size]
        if recording is None:
            return predicted(self.predict, self.bfloat16, images)
        held, replay, logits = recording
        held[: len(images)].copy_(images)
        replay()
        return logits[: len(images)].clone()

    def try_to_record(self, held: Tensor) -> Recording | None:
        try:
            return self.record(held)
        except Exception as error:  # any failure of a compiler or a driver leaves the plain path
            reason = str(error).splitlines()[0]
            warnings.warn(f"predictions run one by one, because recording them failed: {reason}", stacklevel=2)
            return None

    def record(self, held: Tensor) -> Recording:
        """Record a CUDA graph for a batch of this size, with static buffers for its input and its output."""
        logits: list[Tensor] = []
        call = partial(predicted, self.predict, self.bfloat16, held)
        with ExitStack() as ways:
            ways.enter_context(exchanged(self.weights))
            if self.bfloat16:
                ways.enter_context(fused_activations(self.module))
            if self.compile_blocks:
                ways.enter_context(compiled(self.module.modules()))
            with SideStream(held.device):
                for _ in range(WARM_UP):
                    call()
            replay = record(lambda: logits.append(call()))
        return held, replay, logits[0]
