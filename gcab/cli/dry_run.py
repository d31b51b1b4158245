"""`gcab train --dry-run`: what would happen, and what it would cost."""

from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape

from gcab.bench.cost import estimate, matmul_rate
from gcab.config import RunConfig, leaves
from gcab.data.registry import dataset
from gcab.data.scenario import Scenario
from gcab.errors import GcabError
from gcab.methods.registry import method_named
from gcab.runs.run import load_data
from gcab.sizes import Size, size_name


def show(config: RunConfig, root: Path | None, device: torch.device, console: Console) -> None:
    """Settings, tasks and cost; class names only where the data is at hand."""
    info = dataset(config.scenario.dataset)
    counts: dict[int, int] = {}
    if root is not None or not info.needs_root:
        data = load_data(config, root)
        scenario = data.scenario
        counts = {task.index: len(scenario.open(task, data.train).train().labels) for task in scenario.tasks}
    elif info.classes is not None:
        scenario = Scenario.build(config.scenario, config.seed, [f"class {label}" for label in range(info.classes)])
    else:
        raise GcabError(f"the classes of {info.name} are known only from its images: give --data DIR.")
    for key, kind, value in leaves(config):
        console.print(f"{key} = {size_name(value) if kind == Size else value}", highlight=False, markup=False)
    for task in scenario.tasks:
        images = f", {counts[task.index]} training images" if counts else ""
        console.print(
            f"task {task.index + 1}: {task.classes} classes{images}: {', '.join(task.names)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if caution := config.training.caution():
        console.print(caution, highlight=False, soft_wrap=True)
    joint = method_named(config.method).joint
    tasks = scenario.merged() if joint else scenario.tasks
    per_task = [sum(counts.values())] if joint else [counts.get(task.index, 0) for task in tasks]
    cost = estimate(config, tasks, per_task)
    console.print(
        f"after the last task: {cost.parameters / 1e6:.2f} M parameters, {cost.predict_macs / 1e6:.1f} M multiply-"
        f"accumulates per image ({cost.encoder_macs / 1e6:.1f} M of them in the encoder)",
        highlight=False,
        soft_wrap=True,
    )
    if not counts:
        console.print("training cost: give --data DIR to count the images", highlight=False)
        return
    rate = matmul_rate(device, config.training.in_bfloat16(on_gpu=device.type == "cuda"))
    console.print(
        f"training: {cost.training_flops / 1e12:.2f} TFLOP; at the {rate / 1e12:.2f} TFLOP/s of a large matrix "
        f"product on this {escape(device.type)}, at least {duration(cost.training_flops / rate)}",
        highlight=False,
        soft_wrap=True,
    )


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
