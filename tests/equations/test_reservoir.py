"""Reservoir sampling: after any number of tasks every image seen is stored with the same probability."""

import pytest
import torch
from helpers.tasks import setting, tasks_of

from gcab.data.tasks import TaskImages
from gcab.methods.er import Er, ErOptions


@pytest.mark.repeats
def test_the_reservoir_is_a_uniform_sample_of_the_stream() -> None:
    buffer, per_task, tasks, runs = 8, 12, 3, 1500
    stream = per_task * tasks
    method = Er(setting(), ErOptions(buffer=buffer))
    torch.manual_seed(25)
    stored = torch.zeros(stream, dtype=torch.float64)
    for _ in range(runs):
        method.memory.seen.zero_()
        for task in tasks_of(*[per_task] * tasks):
            numbers = torch.arange(task.first, task.first + per_task)
            images = numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
            method.end_task(task, TaskImages(images, numbers))
        assert len(method.memory.labels.unique()) == buffer
        assert torch.equal(method.memory.images[:, 0, 0, 0].long(), method.memory.labels)
        stored[method.memory.labels] += 1
    probability = buffer / stream
    deviation = (runs * probability * (1 - probability)) ** 0.5
    assert float((stored - runs * probability).abs().max()) < 4 * deviation
    for share in stored.view(tasks, per_task).sum(dim=1) / (runs * buffer):
        assert float(share) == pytest.approx(1 / tasks, abs=0.02)
