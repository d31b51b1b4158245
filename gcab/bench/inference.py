"""Classifying a batch: a readable pass per task (`reference`), folded (`fast`), and that recorded or compiled, too."""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor

from gcab.bench.clock import require_agreement, time_ways
from gcab.bench.cost import count_macs, meta_method
from gcab.bench.workload import Row, Say, Workload, flops_of, learned, tasks_of
from gcab.fast.folded import FoldedDecoder
from gcab.fast.inference import fast_predictor
from gcab.methods.gcab import Gcab
from gcab.methods.method import Method
from gcab.seeds import generator
from gcab.sizes import Size, sides

TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}

Call = Callable[[], Tensor]


def time_inference(work: Workload, say: Say) -> list[Row]:
    """Every way to predict after each number of tasks, for each size of a batch; float images, on the device."""
    rows: list[Row] = []
    size = work.config.scenario.image_size
    for tasks in work.inference_tasks:
        method = cast(Gcab, learned(work.config, work.device, tasks))
        for batch in work.batches:
            say(f"inference, tasks learned {tasks}, batch {batch}")
            random = generator(work.config.seed, "bench", batch)
            images = torch.randn(batch, 3, *sides(size), generator=random).to(work.device)
            for part, ways in parts_of(method, images).items():
                recorded = recorded_ways(work, method, images) if part == "whole" else {}
                timed = time_part(work, ways, recorded, batch)
                rows += [{"tasks": tasks, "batch": batch, "part": part, **row} for row in timed]
    return rows


def recorded_ways(work: Workload, method: Gcab, images: Tensor) -> dict[str, Call]:
    """Predictions as a server makes them on a GPU, recorded or compiled, in the precision of the benchmark."""
    if work.device.type != "cuda":
        return {}
    ways = {"recorded": False, "compiled": True} if work.compile_inference else {"recorded": False}
    return {name: partial(fast_predictor(method, work.bfloat16, compiling), images) for name, compiling in ways.items()}


def parts_of(method: Gcab, images: Tensor) -> dict[str, dict[str, Call]]:
    """Part -> way -> call: the whole prediction, and what it is made of beside the cascade, which all ways share."""
    network = method.network
    with torch.inference_mode():
        spaces = network.spaces(network.encoder(images), method.options.compensation)
    return {
        "whole": {"reference": partial(method.predict, images), "fast": partial(method.predictor(), images)},
        "passes": {"reference": partial(network.logits, spaces), "fast": partial(FoldedDecoder(network), spaces)},
        "encoder": {"reference": partial(network.encoder, images)},
    }


@torch.inference_mode()
def time_part(work: Workload, ways: dict[str, Call], recorded: dict[str, Call], batch: int) -> list[Row]:
    """All ways, once they agree: closely in float32, and as far as it reaches in bfloat16."""
    require_same_result(ways, "float32")
    if work.bfloat16:
        ways = {name: partial(in_bfloat16, way, work.device) for name, way in ways.items()}
    ways = {**ways, **recorded}
    require_same_result(ways, "bfloat16" if work.bfloat16 else "float32")
    timed = time_ways(ways, work.device, work.effort)
    return [
        {
            "way": name,
            "seconds": one.seconds,
            "images_per_second": batch / one.seconds,
            "speed_up": timed["reference"].seconds / one.seconds,
            "peak_bytes": one.peak_bytes,
        }
        for name, one in timed.items()
    ]


def require_same_result(ways: dict[str, Call], precision: str) -> None:
    expected = ways["reference"]().float()
    for name, way in ways.items():
        what = f"the {precision} results of {name} and reference predictions"
        require_agreement(what, expected, way().float(), TOLERANCE[precision])


def in_bfloat16(call: Call, device: torch.device) -> Tensor:
    with torch.autocast(device.type, torch.bfloat16):
        return call()


def count(work: Workload) -> list[Row]:
    """Multiply-accumulates and floating-point operations of classifying one image."""
    rows: list[Row] = []
    size = work.config.scenario.image_size
    for tasks in work.inference_tasks:
        method = meta_method(work.config, tasks_of(tasks))
        encoder, fast = count_macs(method, size)
        reference = reference_macs(method, size)
        rows.append(
            {
                "tasks": tasks,
                "macs": {"encoder": encoder, "fast": fast, "reference": reference},
                "flops": {"encoder": 2 * encoder, "fast": 2 * fast, "reference": 2 * reference},
                "over_encoder": {"fast": fast / encoder, "reference": reference / encoder},
            }
        )
    return rows


@torch.no_grad()
def reference_macs(method: Method, size: Size) -> int:
    images = torch.empty(1, 3, *sides(size), device="meta")
    return flops_of(lambda: method.predict(images)) // 2
