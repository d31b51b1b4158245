"""From image files to answers, batch after batch: never more than two batches of images are in memory.

model = ContinualClassifier.load("birds.gcab")
for prediction in predict_files(model, ["photos/", "one.jpg"]):
    print(prediction.file, prediction.error or prediction.top[0].label)
"""

import io
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from gcab.classifier.image_sources import Photo, find_photos
from gcab.classifier.model import Classifier, Label
from gcab.data.decode import read_image
from gcab.errors import GcabError
from gcab.fast.inference import check_views
from gcab.sizes import Size

BATCH = 64
TOP = 3

Precision = Literal["float32", "bfloat16"]
Decoding = list[tuple[Photo, "Future[Tensor]"]]


@dataclass(frozen=True)
class Guess:
    """A class the image may belong to."""

    label: Label
    probability: float  # calibrated
    task: int  # 1-based: with which the class was learned


@dataclass(frozen=True)
class Prediction:
    """What the model says about one image, or why it could not be read."""

    file: str
    top: tuple[Guess, ...] = ()  # most probable first
    unknown: float | None = None  # the share of known images that look more familiar; None: too few were held out
    error: str | None = None


Judgement = tuple[tuple[Guess, ...], float | None]  # the most probable classes and the unknown score
Judge = Callable[[Tensor], list[Judgement]]  # of images as bytes


def predict_files(
    model: Classifier,
    paths: Iterable[str | Path | Photo],
    batch: int = BATCH,
    top: int = TOP,
    precision: Precision = "float32",
    views: int = 1,
) -> Iterator[Prediction]:
    """One prediction for each image of the files, folders and patterns, in their order; bad images do not stop it.

    With two `views` an image and its mirror image decide together.
    """
    if batch < 1 or top < 1:
        raise GcabError(f"batch is {batch} and top is {top}: give 1 or more.")
    check_views(model.method.setting, views)
    photos = (photo for path in paths for photo in ((path,) if isinstance(path, Photo) else find_photos([path])))
    return _predictions(model, photos, batch, partial(judge, model, top=top, precision=precision, views=views))


def _predictions(model: Classifier, photos: Iterator[Photo], batch: int, judge_all: Judge) -> Iterator[Prediction]:
    """While one batch is predicted the next one is decoded, without the interpreter lock."""
    pool = ThreadPoolExecutor(min(16, os.cpu_count() or 1))
    try:
        ready: Decoding = []
        while chunk := list(islice(photos, batch)):
            ahead = [(photo, pool.submit(decode, photo, model.image_size)) for photo in chunk]
            yield from answers(ready, judge_all)
            ready = ahead
        yield from answers(ready, judge_all)
    finally:
        pool.shutdown(cancel_futures=True)


def decode(photo: Photo, size: Size) -> Tensor:
    """(3, height, width) bytes."""
    if isinstance(photo.source, GcabError):
        raise photo.source
    if isinstance(photo.source, bytes):
        return read_image(io.BytesIO(photo.source), size, "the image")
    return read_image(photo.source, size)


def answers(decoding: Decoding, judge_all: Judge) -> Iterator[Prediction]:
    """The predictions of one batch."""
    found = [(photo, future.exception() or future.result()) for photo, future in decoding]
    images = [image for _, image in found if isinstance(image, Tensor)]
    judged = iter(judge_all(torch.stack(images)) if images else ())
    for photo, image in found:
        if isinstance(image, Tensor):
            guesses, unknown = next(judged)
            yield Prediction(photo.name, guesses, unknown)
        else:
            yield Prediction(photo.name, error=str(image))


def judge(model: Classifier, images: Tensor, top: int, precision: Precision, views: int = 1) -> list[Judgement]:
    """For each of (n, 3, height, width) bytes the most probable classes and the unknown score."""
    try:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model.logits(images, views)
    except torch.OutOfMemoryError:
        raise GcabError(f"{len(images)} images at once do not fit on {model.device}: give a smaller batch.") from None
    task_of = [task.index + 1 for task in model.tasks for _ in task.names]
    labels = model.classes
    best = model.calibration.probabilities(logits).topk(min(top, len(labels)), dim=1)
    told = model.calibration.tells_unknown
    unknown = model.calibration.unknown(logits).tolist() if told else [None] * len(logits)
    rows = zip(best.values.tolist(), best.indices.tolist(), unknown, strict=True)
    return [
        (tuple(Guess(labels[k], p, task_of[k]) for p, k in zip(values, classes, strict=True)), score)
        for values, classes, score in rows
    ]
