"""Classifying a batch: a readable pass per task (`reference`), folded (`fast`), folded and replayed (`recorded`)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gcab.bench.clock import require_agreement, time_ways
from gcab.bench.workload import Row, Say, Workload, flops_of, learned, tasks_of
from gcab.evaluation.cost import count_macs, meta_method
from gcab.methods.method import Method
from gcab.training.seeds import generator

TOLERANCE = {"float32": 1e-3, "bfloat16": 5e-2}
WARM_UP = 3  # calls before recording

Predict = Callable[[Tensor], Tensor]


def time_inference(work: Workload, say: Say) -> list[Row]:
    """Every way to predict after each number of tasks, for each size of a batch; float images, on the device."""
    rows: list[Row] = []
    size = work.config.scenario.image_size
    for tasks in work.inference_tasks:
        method = learned(work.config, work.device, tasks)
        ways = {"reference": method.predict, "fast": method.predictor()}
        for batch in work.batches:
            say(f"inference, tasks learned {tasks}, batch {batch}")
            random = generator(work.config.seed, "bench", batch)
            images = torch.randn(batch, 3, size, size, generator=random).to(work.device)
            rows += [{"tasks": tasks, "batch": batch, **row} for row in time_batch(work, ways, images)]
    return rows


@torch.inference_mode()
def time_batch(work: Workload, ways: dict[str, Predict], images: Tensor) -> list[Row]:
    """All ways for one batch, once they agree: closely in float32, and as far as it reaches in bfloat16."""
    require_same_logits(ways, images, "float32")
    if work.bfloat16:
        ways = {name: in_bfloat16(way) for name, way in ways.items()}
    if work.device.type == "cuda":
        ways = {**ways, "recorded": record(ways["fast"], images)}
    require_same_logits(ways, images, "bfloat16" if work.bfloat16 else "float32")
    calls = {name: partial(way, images) for name, way in ways.items()}
    timed = time_ways(calls, work.device, work.effort)
    return [
        {
            "way": name,
            "seconds": one.seconds,
            "images_per_second": len(images) / one.seconds,
            "speed_up": timed["reference"].seconds / one.seconds,
            "peak_bytes": one.peak_bytes,
        }
        for name, one in timed.items()
    ]


def require_same_logits(ways: dict[str, Predict], images: Tensor, precision: str) -> None:
    expected = ways["reference"](images).float()
    for name, way in ways.items():
        what = f"the {precision} logits of {name} and reference predictions"
        require_agreement(what, expected, way(images).float(), TOLERANCE[precision])


def in_bfloat16(predict: Predict) -> Predict:
    def cast(images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            return predict(images)

    return cast


def record(predict: Predict, images: Tensor) -> Predict:
    """A prediction as a CUDA graph: the host asks once, not once for every kernel."""
    graph, stream, static = torch.cuda.CUDAGraph(), torch.cuda.Stream(), images.clone()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            predict(static)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        logits = predict(static)

    def replay(given: Tensor) -> Tensor:
        static.copy_(given)
        graph.replay()
        return logits

    return replay


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
def reference_macs(method: Method, size: int) -> int:
    images = torch.empty(1, 3, size, size, device="meta")
    return flops_of(lambda: method.predict(images)) // 2
