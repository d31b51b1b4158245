"""The step at GPU speed: blocks compiled once, the whole step recorded as a CUDA graph and replayed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gcab.methods.method import Method, Progress
from gcab.model.class_attention import ClassAttention
from gcab.model.encoder import Block
from gcab.model.projectors import ResidualProjector
from gcab.training.feed import Feed
from gcab.training.step import PlainSteps, Step, Steps

WARM_UP = 3  # steps before recording


def make_steps(step: Step, feed: Feed, explain: Callable[[str], None]) -> Steps:
    """The fastest way to run a task's steps here; says in one line why it is not the fastest there is."""
    if feed.device.type != "cuda":
        return PlainSteps(step, feed)
    if not feed.resident:
        explain("the images do not fit in the GPU's memory: they are streamed, and steps run one by one")
        return PlainSteps(step, feed)
    try:
        return CapturedSteps(step, feed)
    except Exception as error:  # any failure of a compiler or a driver leaves the plain path
        explain(f"steps run one by one, because recording them failed: {str(error).splitlines()[0]}")
        return PlainSteps(step, feed)


class CapturedSteps:
    """A task's step, recorded once; between steps the host does nothing but ask for the next replay."""

    def __init__(self, step: Step, feed: Feed) -> None:
        self.step, self.feed = step, feed
        self.order = torch.zeros(feed.steps, feed.batch_size, dtype=torch.long, device=feed.device)
        self.position = torch.zeros(1, dtype=torch.long, device=feed.device)
        self.names: list[str] = []
        self.history = torch.empty(0)
        self.replay = self.record()

    def run(self, order: Tensor) -> Tensor:
        self.order.copy_(order)
        self.position.zero_()
        for _ in range(self.feed.steps):
            self.replay()
        return self.history

    def advance(self) -> None:
        """The step at the current position, wholly on the device."""
        pick = self.order.index_select(0, self.position).squeeze(0)
        images, labels = self.feed.images.index_select(0, pick), self.feed.labels.index_select(0, pick)
        terms = self.step(images, labels, Progress(self.position[0], self.feed.steps))
        losses = torch.stack(list(terms.values()))
        if not self.names:
            self.names = list(terms)
            self.history = losses.new_zeros(self.feed.steps, len(losses))
        self.history.index_copy_(0, self.position, losses[None])
        self.position.add_(1)

    def warm_up(self) -> None:
        """Let compilers and libraries settle, and leave everything as it was."""
        with unchanged(self.step.method, self.step.optimiser):
            for _ in range(WARM_UP):
                self.position.zero_()
                self.advance()
        self.step.optimiser.zero_grad(set_to_none=True)

    def record(self) -> Callable[[], None]:
        """Capture one step as a CUDA graph; the returned call runs it at the next position."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with compiled(self.step), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers advise on settings that would change the results
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.warm_up()
            torch.cuda.current_stream().wait_stream(stream)
            graph.register_generator_state(self.step.random)
            with torch.cuda.graph(graph):
                self.advance()
        return graph.replay


@contextmanager
def compiled(step: Step) -> Iterator[None]:
    """One compiled form for all blocks of a kind and one for augmentation, while a step is recorded.

    Afterwards the modules are as before: evaluation, with batches of any size, never waits for a compiler.
    """
    kinds = Block | ClassAttention | ResidualProjector
    blocks = [module for module in step.method.modules() if isinstance(module, kinds)]
    for block in blocks:
        block.compile(dynamic=False)
    try:
        with step.augment.compiled():
            yield
    finally:
        for block in blocks:
            block._compiled_call_impl = None


@contextmanager
def unchanged(method: Method, optimiser: torch.optim.Optimizer) -> Iterator[None]:
    """Undo in place what happens inside to parameters, buffers and the optimiser's memory."""
    tensors = [*method.parameters(), *method.buffers()]
    saved = [tensor.detach().clone() for tensor in tensors]
    remembered = {
        parameter: {key: value.clone() for key, value in state.items() if isinstance(value, Tensor)}
        for parameter, state in optimiser.state.items()
    }
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(tensors, saved, strict=True):
                tensor.copy_(before)
            for parameter, state in optimiser.state.items():
                restore(state, remembered.get(parameter, {}))


def restore(state: dict[str, Any], before: dict[str, Tensor]) -> None:
    """An optimiser's memory of one parameter as it was; as a new optimiser has it where there was none."""
    for key, value in state.items():
        if isinstance(value, Tensor):
            value.copy_(before[key]) if key in before else value.zero_()
