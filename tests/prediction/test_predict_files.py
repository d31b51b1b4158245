"""The Python interface: order, batches, bounded memory, and bad images among good ones."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from helpers.models import AWKWARD, awkward_model
from helpers.photos import RED_PNG, some_photos
from torch import Tensor

from gcab.classifier.image_sources import Photo
from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.prediction import predict_files
from gcab.errors import GcabError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ContinualClassifier:
    return ContinualClassifier.load(awkward_model(tmp_path_factory.mktemp("models") / "m.gcab"), device="cpu")


@pytest.mark.repeats
def test_what_it_says_is_what_the_model_says(model: ContinualClassifier, tmp_path: Path) -> None:
    files = some_photos(tmp_path / "p", 10)
    found = list(predict_files(model, [tmp_path / "p"], top=9))
    assert [one.file for one in found] == list(map(str, files))
    probabilities, unknown = model.predict_proba(files), model.unknown(files)
    task_of = {name: task + 1 for task, names in enumerate(AWKWARD) for name in names}
    for index, one in enumerate(found):
        assert [guess.label for guess in one.top] == [
            model.classes[k] for k in sorted(range(4), key=lambda k: -probabilities[index, k])
        ]
        assert one.top[0].label == model.predict(files)[index]
        assert [guess.probability for guess in one.top] == pytest.approx(sorted(probabilities[index], reverse=True))
        assert [guess.task for guess in one.top] == [task_of[str(guess.label)] for guess in one.top]
        assert one.unknown == pytest.approx(unknown[index])
        assert one.error is None
    assert len({one.top[0].label for one in found}) > 1  # a model that says the same of everything proves nothing


def test_the_size_of_the_batch_changes_nothing(model: ContinualClassifier, tmp_path: Path) -> None:
    files = some_photos(tmp_path / "p", 11)
    files[4].write_bytes(b"no image")
    whole = list(predict_files(model, files, batch=100))
    for batch in (1, 4, 11):
        parts = list(predict_files(model, files, batch=batch))
        assert [one.file for one in parts] == [one.file for one in whole]
        assert [one.error for one in parts] == [one.error for one in whole]
        assert [[guess.label for guess in one.top] for one in parts] == [
            [guess.label for guess in one.top] for one in whole
        ]
        for part, same in zip(parts, whole, strict=True):
            assert [guess.probability for guess in part.top] == pytest.approx(
                [guess.probability for guess in same.top], abs=1e-4
            )


def test_no_more_than_two_batches_are_in_memory(model: ContinualClassifier) -> None:
    begun = 0

    def endless() -> Iterator[Photo]:
        nonlocal begun
        while True:
            begun += 1
            yield Photo(str(begun), RED_PNG)

    predictions = predict_files(model, endless(), batch=4)
    assert begun == 0
    for seen, one in enumerate(islice(predictions, 21), start=1):
        assert one.file == str(seen)
        assert begun <= seen - 1 - (seen - 1) % 4 + 8
    predictions.close()  # type: ignore[attr-defined]
    assert begun <= 28


def test_bad_images_are_named_in_their_place(model: ContinualClassifier, tmp_path: Path) -> None:
    good = some_photos(tmp_path / "p", 2)
    bad, empty = tmp_path / "bad.png", tmp_path / "empty.jpg"
    bad.write_bytes(good[0].read_bytes()[:200])
    empty.write_bytes(b"")
    places: list[str | Path] = [good[0], bad, tmp_path / "missing.png", f"{tmp_path}/no*", empty, good[1]]
    found = list(predict_files(model, places, batch=2))
    assert [one.error is None for one in found] == [True, False, False, False, False, True]
    for one, words in zip(found[1:5], ("damaged", "cannot be opened", "nothing matches", "is empty"), strict=True):
        assert one.error is not None
        assert words in one.error
        assert one.top == ()


def test_a_path_that_nobody_can_look_at_stops_nothing(
    model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = some_photos(tmp_path / "p", 2)
    locked = tmp_path / "locked" / "a.png"
    look = os.stat

    def guarded(path: str | Path, **options: bool) -> os.stat_result:
        if "locked" in str(path):  # as for anyone but root, whom no permission stops
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **options)

    monkeypatch.setattr(os, "stat", guarded)
    found = list(predict_files(model, [first, tmp_path / ("x" * 300 + ".png"), locked, last]))
    assert [one.error is None for one in found] == [True, False, False, True]
    assert "cannot be opened (File name too long): check the path." in str(found[1].error)
    assert found[2].error == f"image {locked} cannot be opened (Permission denied): check the path."


def test_a_pipe_is_no_image(model: ContinualClassifier, tmp_path: Path) -> None:
    (good,) = some_photos(tmp_path, 1)
    pipe = tmp_path / "a.jpg"
    os.mkfifo(pipe)
    with pipe.open("rb+", buffering=0) as writer:  # with bytes in it even whoever reads it comes to an end
        writer.write(bytes(100))
        for places in ([tmp_path], [good, pipe]):
            fine, bad = predict_files(model, places)
            assert bad.error == f"image {pipe} is no plain file but a folder, a pipe or a device: check the path."
            assert fine.error is None


def test_few_images_in_bfloat16(model: ContinualClassifier, tmp_path: Path) -> None:
    files = some_photos(tmp_path / "p", 4)
    exact, rough = (list(predict_files(model, files, precision=kind)) for kind in ("float32", "bfloat16"))
    gaps = [abs(a.top[0].probability - b.top[0].probability) for a, b in zip(exact, rough, strict=True)]
    assert 0 < max(gaps) < 0.2


def test_a_device_that_is_too_small(model: ContinualClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(model, "logits", full)
    with pytest.raises(GcabError, match="1 images at once do not fit on cpu: give a smaller batch"):
        list(predict_files(model, [Photo("x.png", RED_PNG)]))


@pytest.mark.parametrize(("batch", "top"), [(0, 1), (1, 0)])
def test_counts_below_one_are_refused_at_once(model: ContinualClassifier, batch: int, top: int) -> None:
    with pytest.raises(GcabError, match="give 1 or more"):
        predict_files(model, [], batch=batch, top=top)
