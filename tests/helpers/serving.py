"""A model folder of a few thousand weights, photos to send, and the server around them in this process."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.model_folder import ModelFolder
from gcab.serve.app import make_app
from gcab.serve.limits import Limits
from gcab.serve.middleware import Middleware
from gcab.serve.security import Door
from gcab.serve.served import Inference
from gcab.serve.service import Service
from helpers.photos import encoded, noise, zipped
from helpers.processes import LIMIT
from helpers.settings import tiny

T = TypeVar("T")
SIZE = 16
TASKS = (("robin", "wren"), ("heron", "stork", "<b>swift</b>"))


@cache
def original(method: str) -> "TemporaryDirectory[str]":
    """A model folder made once in this process, of two generations: one task, then two."""
    place = TemporaryDirectory()
    folder, random = ModelFolder(Path(place.name) / "m"), np.random.default_rng(0)
    model = ContinualClassifier(method, image_size=SIZE, epochs=1, device="cpu", settings=tiny(method))
    for names in TASKS:
        images = random.integers(0, 256, (len(names) * 16, SIZE, SIZE, 3), dtype=np.uint8)
        folder.write(model.learn(images, [name for name in names for _ in range(16)], held_out=0.5).save)
    return place


def model_folder(path: Path, method: str = "gcab") -> Path:
    """A copy of it to do anything with."""
    return Path(shutil.copytree(Path(original(method).name) / "m", path, symlinks=True))


def photo(seed: int = 0, width: int = SIZE, height: int = SIZE, kind: str = "PNG", **options: Any) -> bytes:
    return encoded(noise(width, height, seed), kind, **options)


def class_folders(*names: str, count: int = 4) -> bytes:
    return zipped({f"{name}/{index}.png": photo(index) for name in names for index in range(count)})


def form(field: str, *contents: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [(field, (f"{index}.png", content)) for index, content in enumerate(contents)]


class Client:
    """Requests to the application without a network; its loop runs only while a request does."""

    def __init__(self, runner: asyncio.Runner, client: httpx.AsyncClient, service: Service) -> None:
        self.runner, self.client, self.service = runner, client, service

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.run(self.client.get(url, **options))

    def post(self, url: str, **options: Any) -> httpx.Response:
        return self.run(self.client.post(url, **options))

    def predict(self, *contents: bytes, **options: Any) -> httpx.Response:
        return self.post("/predict", files=form("images", *contents), **options)

    def together(self, count: int, *contents: bytes) -> list[httpx.Response]:
        """The same images in many requests at one time."""

        async def all_of_them() -> list[httpx.Response]:
            posts = [self.client.post("/predict", files=form("images", *contents)) for _ in range(count)]
            return await asyncio.gather(*posts)

        return self.run(all_of_them())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)


@contextmanager
def serving(
    folder: Path, limits: Limits | None = None, door: Door | None = None, allow_teach: bool = False
) -> Iterator[Client]:
    service = Service(folder, Inference(device="cpu"), limits or Limits(), allow_teach)
    middleware = make_app(service, door or Door())
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # workers, which are killed, would load it for nothing
        opened = started(middleware)
        client = runner.run(opened.__aenter__())
        try:
            yield Client(runner, client, service)
        finally:
            runner.run(opened.__aexit__(None, None, None))


@asynccontextmanager
async def started(middleware: Middleware) -> AsyncIterator[httpx.AsyncClient]:
    api = middleware.app
    assert isinstance(api, FastAPI)
    async with api.router.lifespan_context(api):
        transport = httpx.ASGITransport(app=middleware)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=LIMIT) as client:
            yield client
