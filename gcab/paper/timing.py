"""How long one image takes and how much is computed, for GCAB and for GCAB-Fast (paper, table dis)."""

import copy
from functools import partial
from typing import Any

import torch

from gcab.bench.clock import Effort, time_ways
from gcab.bench.cost import count_macs
from gcab.classifier.distilling_runs import fast_folder
from gcab.fast.inference import fast_predictor
from gcab.methods.method import Method, parameter_count
from gcab.paper.evidence import distillations
from gcab.paper.published import TITLES
from gcab.runs.assemble import load_method
from gcab.runs.environment import environment, hardware
from gcab.runs.files import write_json
from gcab.runs.folder import RunFolder
from gcab.seeds import generator
from gcab.sizes import Size, sides

EFFORT = Effort(calls=20, seconds=0.3)


def time_models(run: RunFolder, device: torch.device) -> None:
    """Write runtime-*.json into the run's folder: on the CPU, and on the GPU if that is the device."""
    folders = {TITLES.get(run.method, run.method): run.model}
    if capacities := list(distillations(run)):
        folders[TITLES["gcab-fast"]] = fast_folder(run, min(capacities, key=lambda share: abs(share - 0.8)))
    methods = {name: load_method(folder)[0] for name, folder in folders.items()}
    size = next(iter(methods.values())).setting.image_size
    counted = {name: counts(method, size) for name, method in methods.items()}
    for place in dict.fromkeys((torch.device("cpu"), device)):
        seconds = seconds_of_one(methods, place, size)
        models = {name: {**counted[name], "seconds": seconds[name]} for name in methods}
        figures = {**environment(), **hardware(place), "tasks": len(run.tasks), "batch": 1, "models": models}
        write_json(run.path / f"runtime-{place.type}.json", figures)


def counts(method: Method, size: Size) -> dict[str, int]:
    """Parameters, and multiply-accumulates (MACs) for one image, each of which is two floating-point operations."""
    encoder, whole = count_macs(copy.deepcopy(method).to("meta"), size)
    return {"parameters": parameter_count(method), "macs": whole, "encoder_macs": encoder}


@torch.inference_mode()
def seconds_of_one(methods: dict[str, Method], device: torch.device, size: Size) -> dict[str, dict[str, float]]:
    """Medians for a batch of one in float32, all models in turns; on a GPU as it is and recorded as a CUDA graph."""
    image = torch.randn(1, 3, *sides(size), generator=generator(1, "timing")).to(device)
    calls: dict[tuple[str, str], Any] = {}
    for name, method in methods.items():
        calls[name, "plain"] = partial(method.to(device).predictor(), image)
        if device.type == "cuda":
            calls[name, "recorded"] = partial(fast_predictor(method), image)
    ways = {"/".join(key): call for key, call in calls.items()}
    timed = time_ways(ways, device, EFFORT)
    return {name: {way: timed[f"{name}/{way}"].seconds for other, way in calls if other == name} for name in methods}
