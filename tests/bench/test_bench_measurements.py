"""What a benchmark rests on: clocks, counted operations, and the refusal to compare different functions."""

import copy
import time
from collections.abc import Callable
from functools import partial
from itertools import islice

import pytest
import torch
from torch import Tensor

from gcab.bench.clock import Effort, require_agreement, time_ways
from gcab.bench.command import together
from gcab.bench.cost import count_macs, meta_method
from gcab.bench.inference import time_inference
from gcab.bench.training import step_flops, time_steps, time_training
from gcab.bench.workload import Workload, growing, learned, make_workload, tasks_of
from gcab.errors import GcabError
from gcab.methods.gcab import Gcab
from gcab.profiles import PROFILES
from gcab.training.feed import Feed
from gcab.training.step import PlainSteps, Step

CPU = torch.device("cpu")


def tiny(profile: str = "extended") -> Workload:
    return make_workload(profile, CPU, "auto", only=None, quick=True, tasks=[2], batches=[2])


def test_a_clock_tells_slow_from_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("gcab.bench.clock.time.perf_counter", lambda: now[0])
    ways = {name: partial(pass_time, now, seconds) for name, seconds in (("slow", 0.02), ("fast", 0.002))}
    timed = time_ways(ways, CPU, Effort(calls=3, seconds=0.0))
    assert timed["slow"].seconds == pytest.approx(0.02)
    assert timed["fast"].seconds == pytest.approx(0.002)
    assert timed["slow"].peak_bytes is None


def pass_time(clock: list[float], seconds: float) -> None:
    clock[0] += seconds


def test_ways_are_timed_in_turns_until_both_limits_are_reached() -> None:
    called: list[str] = []
    ways: dict[str, Callable[[], object]] = {name: partial(called.append, name) for name in "ab"}
    time_ways(ways, CPU, Effort(calls=4, seconds=0.0))
    assert "".join(called) == "aabb" + 4 * "ab"
    ways["a"] = lambda: time.sleep(0.01)
    called.clear()
    time_ways(ways, CPU, Effort(calls=1, seconds=0.05))
    assert len(called) > 5


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_agreement_is_measured_by_the_largest_value(scale: float) -> None:
    expected = torch.tensor([0.0, -2.0]) * scale
    require_agreement("a and b", expected, torch.tensor([0.018, -2.018]) * scale, 0.01)
    for found in ([0.022, -2.0], [0.0, -1.978], [0.0, float("nan")]):
        with pytest.raises(GcabError, match=r"^a and b differ by .* more than 0.01: their speed is not compared"):
            require_agreement("a and b", expected, torch.tensor(found) * scale, 0.01)


def test_a_fast_prediction_that_differs_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    time_inference(tiny(), lambda _: None)
    predictor = Gcab.predictor

    def slightly_wrong(method: Gcab) -> Callable[[Tensor], Tensor]:
        right = predictor(method)
        return lambda images: right(images) * (1 + 1e-4 * torch.arange(20))

    monkeypatch.setattr(Gcab, "predictor", slightly_wrong)
    with pytest.raises(GcabError, match="the float32 results of fast and reference predictions differ by"):
        time_inference(tiny(), lambda _: None)


@pytest.mark.parametrize("profile", PROFILES)
def test_methods_are_grown_with_finished_gates_and_distinct_predictions(profile: str) -> None:
    method = learned(tiny(profile).config, CPU, 3)
    assert isinstance(method, Gcab)
    assert method.network.finished == method.network.tasks == 3
    assert not method.training
    logits = method.predict(torch.randn(2, 3, 32, 32))
    assert logits.shape == (2, 30)
    assert logits.isfinite().all()
    assert logits.std(dim=1).min() > 0


def test_timing_a_step_trains_and_leaves_the_method_as_it_was() -> None:
    work = tiny()
    [_, (task, method)] = islice(growing(work.config, CPU, 2), 2)  # which does not let the second task end
    before, seen = copy.deepcopy(method.state_dict()), []

    class Watched(PlainSteps):
        def run(self, order: Tensor) -> Tensor:
            losses = super().run(order)
            seen.append(method.state_dict()["network.block.output.weight"].clone())
            return losses

    row, losses = time_steps(work, method, task, Watched)
    assert losses.isfinite().all()
    assert row["seconds"] > 0
    assert not torch.equal(seen[0], seen[-1])
    for name, value in method.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.repeats
def test_a_step_counts_forward_backward_and_teacher() -> None:
    config = tiny().config
    batch = config.training.batch_size
    counts = [step_flops(config, tasks) for tasks in (1, 2)]
    encoder, _ = count_macs(meta_method(config, tasks_of(1)), 32)
    forward = 2 * batch * encoder
    assert 2.9 * forward < counts[0] < 3.3 * forward  # the images need no gradient; the decoder comes on top
    projector = 3 * 2 * batch * 2 * 64 * config.encoder.width**2
    assert counts[1] - counts[0] == pytest.approx(forward + projector, rel=0.02)


def test_losses_that_differ_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(PlainSteps):
        def __init__(self, step: Step, feed: Feed) -> None:
            super().__init__(step, feed)

        def run(self, order: Tensor) -> Tensor:
            return super().run(order) * 1.5

    monkeypatch.setattr("gcab.bench.training.RecordedSteps", PlainSteps)
    monkeypatch.setattr("gcab.bench.training.recording_works", lambda device: device.type == "cpu")
    assert [row["way"] for row in time_training(tiny(), lambda _: None)] == ["plain", "recorded"] * 3
    monkeypatch.setattr("gcab.bench.training.RecordedSteps", Wrong)
    with pytest.raises(GcabError, match="the losses of recorded and plain training differ"):
        time_training(tiny(), lambda _: None)


def test_sets_lie_side_by_side() -> None:
    rows = [{"way": "fast", "tasks": 2, "seconds": 0.5}, {"way": "fast", "tasks": 2, "seconds": 0.7}]
    assert together(rows) == {"way": "fast", "tasks": 2, "seconds": [0.5, 0.7]}
