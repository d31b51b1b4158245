"""The training step: driven from Python (`plain`) against compiled and recorded (`recorded`)."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from gcab.bench.clock import forget_peak, peak_bytes, require_agreement, time_ways, wait_for
from gcab.bench.cost import matmul_rate, meta_method
from gcab.bench.workload import Row, Say, Workload, flops_of, growing, random_images, tasks_of
from gcab.config import RunConfig
from gcab.data.augment import Augment
from gcab.data.tasks import Batch, Progress, Task
from gcab.fast.graphs import unchanged
from gcab.methods.method import Method
from gcab.model.exact import in_double
from gcab.seeds import generator, seeded
from gcab.sizes import sides
from gcab.training.feed import Feed
from gcab.training.recorded import RecordedSteps
from gcab.training.schedule import make_optimiser
from gcab.training.step import PlainSteps, Step, Steps

TOLERANCE = 0.05  # of an epoch's mean losses: compiled code draws other paths to drop


def time_training(work: Workload, say: Say) -> list[Row]:
    """Every way to train each of the chosen tasks, with the share of the device's matrix-product rate it reaches."""
    ways: dict[str, Callable[[Step, Feed], Steps]] = {"plain": PlainSteps}
    if recording_works(work.device):
        ways["recorded"] = RecordedSteps
    rate = matmul_rate(work.device, work.config.training.precision == "bfloat16")
    rows: list[Row] = []
    for task, method in growing(work.config, work.device, max(work.training_tasks)):
        number = task.index + 1
        if number not in work.training_tasks:
            continue
        method.begin_task(task)
        flops, losses = step_flops(work.config, number), {}
        for way, make_steps in ways.items():
            say(f"training task {number}, {way}")
            row, losses[way] = time_steps(work, method, task, make_steps)
            require_agreement(f"the losses of {way} and plain training", losses["plain"], losses[way], TOLERANCE)
            reached = {"matmul_flops_per_second": rate, "share_of_matmul_rate": flops / row["seconds"] / rate}
            rows.append({"task": number, "way": way, **row, "flops": flops, **reached})
    return rows


def recording_works(device: torch.device) -> bool:
    return device.type == "cuda"


def time_steps(
    work: Workload, method: Method, task: Task, make_steps: Callable[[Step, Feed], Steps]
) -> tuple[Row, Tensor]:
    """One step's cost and an epoch's mean losses; the method is left as it was."""
    config, device, training = work.config, work.device, work.config.training
    step, feed = prepared(config, device, method, task, work.steps * training.batch_size)
    forget_peak(device)
    wait_for(device)
    start = time.perf_counter()
    steps = make_steps(step, feed)
    wait_for(device)
    start_up = time.perf_counter() - start
    with unchanged([*method.parameters(), *method.buffers()], step.optimiser), seeded(config.seed, "bench"):
        order = feed.order(generator(config.seed, "bench", "order"))
        step.random.manual_seed(config.seed)
        losses = steps.run(order).mean(dim=0)
        peak = peak_bytes(device)
        timed = time_ways({"steps": lambda: steps.run(order)}, device, work.effort)["steps"]
    seconds = timed.seconds / feed.steps
    row = {
        "seconds": seconds,
        "images_per_second": training.batch_size / seconds,
        "start_up_seconds": start_up,
        "peak_bytes": peak,
    }
    return row, losses


def prepared(config: RunConfig, device: torch.device, method: Method, task: Task, images: int) -> tuple[Step, Feed]:
    """The step of a task, as the trainer makes it, and the random images that it is fed with."""
    training = config.training
    feed = Feed(random_images(config, task, images), training.batch_size, device)
    method.train().zero_grad(set_to_none=True)
    optimiser, random = make_optimiser(training, method.parameters()), torch.Generator(in_double(device))
    augment = Augment(config.augment, method.setting.mean, method.setting.std)
    return Step(method, optimiser, augment, random, training.clip, training.precision == "bfloat16"), feed


def step_flops(config: RunConfig, tasks: int) -> int:
    """Operations of a step's matrix products, counted: student forward and backward, teacher forward."""
    learned = tasks_of(tasks)
    method, size, batch_size = meta_method(config, learned), config.scenario.image_size, config.training.batch_size
    method.begin_task(learned[-1])
    with torch.device("meta"):
        images, labels = torch.empty(batch_size, 3, *sides(size)), torch.empty(batch_size, dtype=torch.long)
        progress = Progress(torch.zeros(()), 1)

    def train() -> None:
        terms = method.train().loss(method.batch(Batch(images, labels)), progress)
        torch.stack(list(terms.values())).sum().backward()

    return flops_of(train)
