"""A model of a few thousand weights in a folder, photos of two colours, and the server around them in this process."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
from fastapi import FastAPI
from PIL import Image

from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.model_folder import ModelFolder
from gcab.serve.app import make_app
from gcab.serve.gate import Gate
from gcab.serve.limits import Limits
from gcab.serve.security import Door
from gcab.serve.served import Inference
from gcab.serve.service import Service

T = TypeVar("T")
SIZE = 16
TASKS = (("robin", "wren"), ("heron", "stork", "<b>swift</b>"))
SMALL = {"encoder.width": 16, "encoder.heads": 4, "encoder.blocks": 1, "encoder.mlp_ratio": 2.0}


def model_folder(path: Path, method: str = "gcab") -> Path:
    """Two generations: one task, then two."""
    model = ContinualClassifier(method, image_size=SIZE, epochs=1, device="cpu", settings=SMALL)
    folder, random = ModelFolder(path), np.random.default_rng(0)
    for names in TASKS:
        images = random.integers(0, 256, (len(names) * 16, SIZE, SIZE, 3), dtype=np.uint8)
        model.learn(images, [name for name in names for _ in range(16)], held_out=0.5)
        folder.write(model.save)
    return path


def photo(seed: int = 0, width: int = SIZE, height: int = SIZE, kind: str = "PNG", **options: Any) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


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
    gate = make_app(service, door or Door())
    with asyncio.Runner() as runner:
        opened = started(gate)
        client = runner.run(opened.__aenter__())
        try:
            yield Client(runner, client, service)
        finally:
            runner.run(opened.__aexit__(None, None, None))


@asynccontextmanager
async def started(gate: Gate) -> AsyncIterator[httpx.AsyncClient]:
    api = gate.app
    assert isinstance(api, FastAPI)
    async with api.router.lifespan_context(api):
        transport = httpx.ASGITransport(app=gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=20) as client:
            yield client
