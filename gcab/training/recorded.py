"""The step at GPU speed: blocks compiled once, the whole step recorded as a CUDA graph and replayed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from gcab.data.tasks import Batch, Progress
from gcab.fast.compiling import compiled
from gcab.fast.graphs import WARM_UP, SideStream, record, unchanged
from gcab.fast.low_precision import LowPrecision, exchanged
from gcab.parallel.ranks import world
from gcab.training.feed import Feed
from gcab.training.step import PlainSteps, Step, Steps


def make_steps(step: Step, feed: Feed, explain: Callable[[str], None]) -> Steps:
    """The fastest way to run a task's steps here; says in one line why it is not the fastest there is."""
    if feed.device.type != "cuda":
        return PlainSteps(step, feed)
    if world() > 1:
        explain("several processes share each batch: their steps run one by one")
        return PlainSteps(step, feed)
    if not step.method.recorded:
        explain("steps of this method run one by one: they depend on values that only the device knows")
        return PlainSteps(step, feed)
    try:
        return RecordedSteps(step, feed)
    except Exception as error:  # any failure of a compiler or a driver leaves the plain path
        explain(f"steps run one by one, because recording them failed: {str(error).splitlines()[0]}")
        return PlainSteps(step, feed)


class RecordedSteps:
    """A task's step as a CUDA graph: recorded once, then only replayed.

    While a step learns from one batch, the device prepares the next one beside it, and where images are streamed the
    one after that arrives.
    """

    def __init__(self, step: Step, feed: Feed) -> None:
        self.step, self.feed, self.source = step, feed, feed.source
        self.position = torch.zeros(1, dtype=torch.long, device=feed.device)
        self.batch: Batch | None = None
        self.names: list[str] = []
        self.history = torch.empty(0)
        self.low = LowPrecision(step.method) if step.bfloat16 else None
        self.begin, self.replay = self.record()

    def run(self, order: Tensor) -> Tensor:
        with self.source.epoch(order):
            self.source.ready(0)
            self.begin()
            self.source.taken(0)
            for upcoming in range(1, self.feed.steps + 1):
                self.source.ready(upcoming)
                self.replay()
                self.source.taken(upcoming)
        return self.history

    def fetch(self, position: Tensor) -> Batch:
        """The batch of a step, wholly on the device."""
        return self.step.prepare(*self.source.batch(position))

    def start(self) -> None:
        """Prepare the first batch."""
        self.position.zero_()
        self.hand_over(self.fetch(self.position))

    def advance(self) -> None:
        """Learn from the batch at hand; beside it, or after it where it changes the memory, prepare the next one."""
        assert self.batch is not None, "start comes first"
        beside = SideStream(self.feed.device)
        terms = self.step.learn(self.batch, Progress(self.position[0], self.feed.steps))
        losses = torch.stack(list(terms.values()))
        if not self.names:
            self.names = list(terms)
            self.history = losses.new_zeros(self.feed.steps, len(losses))
        self.history.index_copy_(0, self.position, losses[None])
        with beside if self.step.method.ahead else nullcontext():
            upcoming = self.fetch(self.position + 1)
        self.hand_over(upcoming)
        self.position.add_(1)

    def hand_over(self, batch: Batch) -> None:
        """Copy the next batch into the static buffers that the CUDA graph reads."""
        if self.batch is None:
            self.batch = batch
            return
        new = batch.tensors()
        for name, held in self.batch.tensors().items():
            held.copy_(new[name])

    def warm_up(self) -> None:
        """Run warm-up steps for compilers and libraries, then restore the state they changed."""
        method = self.step.method
        with unchanged([*method.parameters(), *method.buffers()], self.step.optimiser):
            self.start()
            for _ in range(WARM_UP):
                self.position.zero_()
                self.advance()

    def record(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Record the start of an epoch and one step as CUDA graphs; the returned calls run them."""
        hot = [*self.step.method.modules(), self.step.augment]
        with compiled(hot), low_precision(self.step, self.low), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers advise on settings that would change the results
            with SideStream(self.feed.device):  # as CUDA graphs require
                self.warm_up()
            return record(self.start, self.step.random), record(self.advance, self.step.random)


@contextmanager
def low_precision(step: Step, low: LowPrecision | None) -> Iterator[None]:
    """Record the step with the bfloat16 copies of the weights, which the graph then keeps using."""
    if low is None:
        yield
        return
    step.weights = low.of_learning
    try:
        with exchanged(low.fixed):
            yield
    finally:
        step.weights = nullcontext
