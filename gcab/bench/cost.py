"""What a run will cost, counted before it starts: parameters, multiply-accumulates, and the least time they take."""

import time
import warnings
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from gcab.config import RunConfig
from gcab.data.tasks import Task
from gcab.methods.method import Method, parameter_count
from gcab.runs.assemble import build_method
from gcab.sizes import Size, sides


@dataclass(frozen=True)
class Cost:
    """Counts after the last task; one multiply-accumulate (MAC) is two floating-point operations."""

    parameters: int
    encoder_macs: int  # per image
    predict_macs: int  # per image
    training_flops: float  # of the whole run, forward and backward


def meta_method(config: RunConfig, tasks: tuple[Task, ...]) -> Method:
    """The method as it will be after its last task, on the meta device: shapes without values."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*copying from a non-meta parameter")  # of a pretrained encoder
        method = build_method(config)
        for task in tasks:
            method.grow(task)
    return method.eval()


def count_macs(method: Method, image_size: Size) -> tuple[int, int]:
    """MACs per image of (the encoder alone, a whole prediction), on meta tensors, where attention counts."""
    images = torch.empty(1, 3, *sides(image_size), device="meta")
    counts = []
    for function in (method.features, method.predictor()):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            function(images)
        counts.append(counter.get_total_flops() // 2)
    return counts[0], counts[1]


def estimate(config: RunConfig, tasks: tuple[Task, ...], images_per_task: list[int]) -> Cost:
    """Costs of a run over these tasks, a backward pass as two forward passes; teachers and replay come on top."""
    flops = 0.0
    for index in range(len(tasks)):
        method = meta_method(config, tasks[: index + 1])
        encoder, whole = count_macs(method, config.scenario.image_size)
        passes = 3 * config.training.epochs_of(index) if method.trains else 1  # what trains nothing sees an image once
        flops += 2.0 * passes * whole * images_per_task[index]
    return Cost(parameter_count(method), encoder, whole, flops)


def matmul_rate(device: torch.device, bfloat16: bool) -> float:
    """Floating-point operations per second of a large matrix product here: no training step is faster."""
    side = 4096 if device.type == "cuda" else 1024
    matrix = torch.randn(side, side, device=device, dtype=torch.bfloat16 if bfloat16 else torch.float32)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        (matrix @ matrix).sum().item()
        best = min(best, time.perf_counter() - start)
    return 2 * side**3 / best
