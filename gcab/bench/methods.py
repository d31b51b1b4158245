"""The training step of several methods, each as `gcab train` runs it, against that of fine-tuning."""

from dataclasses import replace

from gcab.bench.training import prepared, recording_works, time_steps
from gcab.bench.workload import CLASSES, Row, Say, Workload, growing
from gcab.data.tasks import Task
from gcab.methods.method import Method
from gcab.seeds import generator, seeded
from gcab.training.recorded import make_steps
from gcab.training.step import PlainSteps

IMAGES = 200  # of each earlier task: those of two fill every memory


def time_methods(work: Workload, say: Say) -> list[Row]:
    """A step of each method at the last of the training tasks, when its memory is full and its teacher at work."""
    return [time_method(replace(work, config=config), say) for config in work.compared]


def time_method(work: Workload, say: Say) -> Row:
    """The step in the fastest way there is for this method here, and why that is not recording, if it is not."""
    config, number, reasons = work.config, max(work.training_tasks), list[str]()
    say(f"training task {number}, {config.method}")
    task, method = at_start_of(work, number)
    row, _ = time_steps(work, method, task, lambda step, feed: make_steps(step, feed, reasons.append))
    return {
        "method": config.method,
        "task": number,
        "passes": method.passes(config.options, config.training.batch_size, [CLASSES] * number),
        "recorded": recording_works(work.device) and not reasons,
        "not_recorded": reasons,
        **row,
    }


def at_start_of(work: Workload, number: int) -> tuple[Task, Method]:
    """A method as it begins a task, after a short epoch of each one before."""
    config = work.config
    for task, method in growing(config, work.device, number, IMAGES):
        method.begin_task(task)
        if task.index + 1 == number:
            return task, method
        step, feed = prepared(config, work.device, method, task, IMAGES)
        with seeded(config.seed, "bench", task.index):
            step.random.manual_seed(config.seed)
            PlainSteps(step, feed).run(feed.order(generator(config.seed, "bench", "order", task.index)))
    raise AssertionError("tasks are counted from 1")
