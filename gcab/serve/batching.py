"""Dynamic batching: images of many requests share a forward pass, which costs little more than that of one image."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import IO

import torch
from torch import Tensor

from gcab.serve.decoding import Decoders
from gcab.serve.limits import Limits, RequestError, busy
from gcab.serve.metrics import Metrics
from gcab.serve.photos import decode_photo
from gcab.serve.served import Scores, ServedModel
from gcab.sizes import Size

DECODERS = 2  # processes, each with a thread here that waits for it


@dataclass(frozen=True)
class Waiting:
    """A queued image: its pixels, the model it was decoded for, and the future of its scores."""

    model: ServedModel
    pixels: Tensor  # (3, S, S) uint8
    attention: bool
    scores: "asyncio.Future[Scores]"


class Turn:
    """One request's share of the decoders: bounds its concurrency and its processor time."""

    def __init__(self, seconds: float) -> None:
        self.places, self.left = asyncio.Semaphore(DECODERS), seconds

    def spend(self, seconds: float) -> None:
        self.left -= seconds


class Batcher:
    """A queue of bounded length in front of one thread that runs the network."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.admitted = 0  # images that are decoded, wait or are in the network
        self.queue: asyncio.Queue[Waiting] = asyncio.Queue()  # its length is bounded by `admit`
        self.decoders = Decoders(DECODERS, limits)
        self.decoding = ThreadPoolExecutor(DECODERS, "decode")
        self.network = ThreadPoolExecutor(1, "network")
        self.worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.decoders.start()
        self.worker = asyncio.create_task(self.work())

    async def stop(self) -> None:
        if self.worker is not None:
            self.worker.cancel()
            await asyncio.wait([self.worker])
        for pool in (self.decoding, self.network):
            pool.shutdown(wait=False, cancel_futures=True)
        self.decoders.close()

    @contextmanager
    def admit(self, count: int) -> Iterator[None]:
        """Context manager that reserves places in the queue for the images of one request, or raises 429."""
        if self.admitted + count > self.limits.queue:
            raise busy("the queue is full: try again in a moment.")
        self.admitted += count
        try:
            yield
        finally:
            self.admitted -= count

    def turn(self) -> Turn:
        return Turn(self.limits.request_seconds)

    async def scores(
        self, model: ServedModel, file: IO[bytes], name: str, attention: bool, turn: Turn | None = None
    ) -> Scores:
        """The network's scores of one image file; `RequestError` if it is none."""
        pixels = await self.decoded(file, name, model.image_size, turn or self.turn())
        waiting = Waiting(model, pixels, attention, asyncio.get_running_loop().create_future())
        self.queue.put_nowait(waiting)
        return await waiting.scores

    async def decoded(self, file: IO[bytes], name: str, size: Size, turn: Turn) -> Tensor:
        async with turn.places:
            if turn.left <= 0:
                raise RequestError(413, "the images of this request take too long: send fewer or smaller ones.")
            work = partial(decode_photo, self.decoders, file, name, size, turn.spend)
            return await asyncio.get_running_loop().run_in_executor(self.decoding, work)

    async def work(self) -> None:
        while True:
            await self.answer_all(await self.collect())  # no variable, which would keep a batch's model in memory

    async def answer_all(self, batch: list[Waiting]) -> None:
        """Answer a batch model by model: after a change, requests in flight get the model they were decoded for."""
        for _, group in groupby(batch, key=lambda waiting: id(waiting.model)):
            await self.answer([waiting for waiting in group if not waiting.scores.done()])

    async def collect(self) -> list[Waiting]:
        """Collect a batch; waits for more images only while admitted ones are being decoded, and not for long."""
        batch = [await self.queue.get()]
        deadline = asyncio.get_running_loop().time() + self.limits.wait_seconds
        while len(batch) < min(self.limits.batch, self.admitted):
            try:
                async with asyncio.timeout_at(deadline if self.queue.empty() else None):
                    batch.append(await self.queue.get())
            except TimeoutError:
                break
        return batch

    async def answer(self, batch: list[Waiting]) -> None:
        if not batch:
            return
        loop = asyncio.get_running_loop()
        pixels = torch.stack([waiting.pixels for waiting in batch])
        asked = [waiting.attention for waiting in batch]
        try:
            scores = await loop.run_in_executor(self.network, batch[0].model.scores, pixels, asked)
        except Exception as problem:  # the batch fails, the worker goes on
            for waiting in batch:
                if not waiting.scores.done():
                    waiting.scores.set_exception(problem)
            return
        self.metrics.batches.observe(len(batch))
        for waiting, own in zip(batch, scores, strict=True):
            if not waiting.scores.done():
                waiting.scores.set_result(own)
