"""What is measured: the paper's CIFAR-100 shapes with random images, or tiny ones for a try."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gcab.bench.clock import Effort
from gcab.config import RunConfig, override, resolve
from gcab.data.tasks import Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.gcab import Gcab
from gcab.methods.method import Method, grow
from gcab.methods.registry import method_named, methods
from gcab.runs.assemble import build_method
from gcab.seeds import generator
from gcab.sizes import sides
from gcab.training.trainer import finish

SCENARIO = "cifar100/10"
CLASSES = 10  # per task
BASELINE, ALL = "finetune", ("all",)  # of `--methods`
SMALL_EYE = {"options.eye": 64}
TINY = {"encoder.width": 48, "encoder.heads": 4, "encoder.blocks": 1, "training.batch_size": 8}

Say = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """The settings of a benchmark; nothing in it was measured."""

    config: RunConfig
    device: torch.device
    training_tasks: tuple[int, ...]  # 1-based
    inference_tasks: tuple[int, ...]  # how many were learned
    batches: tuple[int, ...]  # images classified at once
    parts: tuple[str, ...]  # "training", "inference", "methods"
    compared: tuple[RunConfig, ...]  # methods whose steps are compared, the baseline first
    steps: int  # of training between two looks at the clock
    effort: Effort
    bfloat16: bool  # at inference
    compile_inference: bool


def make_workload(
    profile: str,
    device: torch.device,
    precision: str,
    only: str | None,
    quick: bool,
    tasks: Sequence[int] | None = None,
    batches: Sequence[int] | None = None,
    compile_inference: bool = False,
    names: Sequence[str] = (),
) -> Workload:
    """`auto` is what the program itself does: it trains in bfloat16 on a GPU, and predicts in float32."""
    training = {"auto": "bfloat16" if device.type == "cuda" else "float32"}.get(precision, precision)
    compared = tuple(settings(name, profile, training, quick) for name in with_baseline(names))
    return Workload(
        config=compared[0] if compared else settings("gcab", profile, training, quick),
        device=device,
        training_tasks=(1, 2, 3) if quick else (1, 2, 10),
        inference_tasks=() if compared else tuple(tasks or ((1, 3) if quick else (1, 2, 5, 10, 20, 50))),
        batches=tuple(batches or ((1, 8) if quick else (1, 128, 1024))),
        parts=("methods",) if compared else (only,) if only else ("training", "inference"),
        compared=compared,
        steps=20 if device.type == "cuda" else 1,
        effort=Effort(calls=3, seconds=0.0 if quick else 0.3 if device.type == "cuda" else 1.0),
        bfloat16=precision == "bfloat16",
        compile_inference=compile_inference,
    )


def settings(method: str, profile: str, precision: str, quick: bool) -> RunConfig:
    """A method's own settings, but for the size of its networks in a quick try."""
    config = resolve(SCENARIO, method, profile, changes={"training.precision": precision, **(TINY if quick else {})})
    has_eye = getattr(config.options, "eye", 0) > 0
    return override(config, SMALL_EYE) if quick and has_eye else config


def with_baseline(names: Sequence[str]) -> list[str]:
    """The methods to compare, each once; none where none is named."""
    if tuple(names) == ALL:
        names = [name for name, kind in methods().items() if trains_by_tasks(kind)]
    for name in names:
        if not trains_by_tasks(method_named(name)):
            raise GcabError(f"--methods names {name}, which is not trained task after task: leave it out.")
    return list(dict.fromkeys((BASELINE, *names))) if names else []


def trains_by_tasks(kind: type[Method]) -> bool:
    return kind.trains and not kind.joint


def tasks_of(count: int) -> tuple[Task, ...]:
    names = [f"class {label}" for label in range(count * CLASSES)]
    return tuple(Task(i, i * CLASSES, tuple(names[i * CLASSES : (i + 1) * CLASSES])) for i in range(count))


def random_images(config: RunConfig, task: Task, count: int) -> TaskImages:
    """Noise, equally many images of each class."""
    size, random = config.scenario.image_size, generator(config.seed, "bench", task.index)
    images = torch.randint(0, 256, (count, 3, *sides(size)), dtype=torch.uint8, generator=random)
    return TaskImages(images, task.first + torch.arange(count) % task.classes)


def growing(
    config: RunConfig, device: torch.device, count: int, images: int = 2 * CLASSES
) -> Iterator[tuple[Task, Method]]:
    """A generator of the method at the start of each task; advancing it ends the task with so many images."""
    method = build_method(config).to(device)
    if isinstance(method, Gcab) and method.referee is not None:
        method.referee.weights.fill_(1.0)  # every opinion is heard, so that an error in any of them shows
    for task in tasks_of(count):
        grow(method, task, config.seed)
        yield task, method
        finish(method.eval(), task, random_images(config, task, images), config.seed)


def learned(config: RunConfig, device: torch.device, count: int) -> Method:
    """A method that has `count` tasks behind it, with the gates and statistics of finished tasks."""
    *_, (_, method) = growing(config, device, count)
    return method


def flops_of(call: Callable[[], object]) -> int:
    """Floating-point operations of all matrix products; on meta tensors, where fused attention counts too."""
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())
