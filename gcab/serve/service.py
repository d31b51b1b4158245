"""The model folder behind the server: which model answers now, and how it is exchanged for another."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from gcab.classifier.facts import facts_of
from gcab.classifier.model_folder import ModelFolder
from gcab.errors import GcabError
from gcab.report.model_page import model_content
from gcab.serve.batching import Batcher
from gcab.serve.decoding import Decoders
from gcab.serve.limits import Limits, RequestError
from gcab.serve.metrics import Metrics
from gcab.serve.served import Inference, ServedModel
from gcab.serve.teaching import Teacher
from gcab.serve.wording import without_paths
from gcab.serve.workplace import remove_abandoned
from gcab.sizes import Size


class Service:
    """Everything the routes share."""

    def __init__(self, folder: Path, inference: Inference, limits: Limits, allow_teach: bool = False) -> None:
        limits.check()
        self.folder = ModelFolder(folder.resolve())
        self.path = self.folder.path
        self.inference, self.limits, self.allow_teach = inference, limits, allow_teach
        if allow_teach:
            self.folder.check_writable()
            remove_abandoned()
        self.model = ServedModel.load(self.path, inference)
        self.metrics = Metrics()
        self.batcher = Batcher(limits, self.metrics)
        learn = (sys.executable, "-m", "gcab", "learn", "--device", inference.device)
        self.teacher = Teacher(self, limits, learn)
        self.reloading, self.reporting = asyncio.Lock(), asyncio.Lock()
        self.reported: tuple[str | None, str] = (None, "")  # the digest of a model, and the content of its report

    def describe(self) -> dict[str, Any]:
        """The answer to GET /model."""
        return {
            "name": (self.path.parent if self.folder.is_run else self.path).name.removesuffix(".gcab"),
            **self.model.describe(),
            "can_undo": self.folder.can_undo,
            "undoes": self.folder.undoes,
            "can_teach": self.allow_teach,
            "limits": {
                "body_bytes": self.limits.body_bytes,
                "archive_bytes": self.limits.archive_bytes,
                "pixels": self.limits.pixels,
                "batch": self.limits.images,
            },
        }

    @property
    def image_size(self) -> Size:
        return self.model.image_size

    @property
    def decoders(self) -> Decoders:
        return self.batcher.decoders

    def expected_accuracy(self) -> float | None:
        return self.model.expected_accuracy()

    async def reload(self) -> None:
        """Serve the folder's current model; requests in flight keep the one they began with."""
        async with self.reloading:
            try:
                if await asyncio.to_thread(lambda: self.folder.digest) != self.model.digest:
                    self.model = await asyncio.to_thread(ServedModel.load, self.path, self.inference)
            except GcabError as problem:
                raise RequestError(500, without_paths(str(problem), self.path)) from problem

    async def report(self) -> dict[str, Any]:
        """The report of the folder's current model, cached for each model, as it takes seconds."""
        async with self.reporting:
            try:
                digest = await asyncio.to_thread(lambda: self.folder.digest)
                if digest != self.reported[0]:
                    self.reported = digest, await asyncio.to_thread(lambda: model_content(facts_of(self.path)))
            except GcabError as problem:
                raise RequestError(503, without_paths(str(problem), self.path)) from problem
            return {"digest": self.reported[0], "content": self.reported[1]}

    async def watch(self) -> None:
        """Poll the folder for models that other processes write; if one cannot be read, the old one stays."""
        last = ""
        while True:
            await asyncio.sleep(self.limits.look_seconds)
            complaint = ""
            try:
                await self.reload()
            except RequestError as problem:
                complaint = problem.sentence
            except Exception as problem:  # whatever it is, the next look may be luckier
                complaint = repr(problem)
            if complaint and complaint != last:
                logging.getLogger("gcab.serve").error("the model in the folder cannot be served: %s", complaint)
            last = complaint

    def check_teachable(self) -> None:
        if not self.allow_teach:
            raise RequestError(403, "this server does not learn: start it with --allow-teach to allow it.")

    async def undo(self) -> None:
        """Back to before the last task, or its distillation."""
        async with self.teacher.alone():
            if not self.folder.can_undo:
                raise RequestError(409, "there is nothing to undo: no generation before this one is kept.")
            try:
                await asyncio.to_thread(self.folder.undo)
            except GcabError as problem:
                raise RequestError(409, without_paths(str(problem), self.path)) from problem
            await self.reload()
