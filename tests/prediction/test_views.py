"""Two views: an image and its mirror image decide together, wherever a model predicts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.photos import some_photos
from helpers.settings import TINY_GCAB, train_flags
from torch import Tensor

from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.prediction import predict_files
from gcab.cli.main import main
from gcab.data.arrays import as_images
from gcab.errors import GcabError
from gcab.model.referee import EYE
from gcab.runs.folder import find_runs
from gcab.runs.testing import evaluate_run
from gcab.serve.served import Inference, ServedModel

pytestmark = pytest.mark.repeats

REFUSED = r"a mirrored image is another thing \(augment\.flip is false\): leave views at 1"


def random_images(count: int, seed: int = 0) -> np.ndarray:
    """Every other one is bright on the left, the others at the top; the seed is the colour, too."""
    random, colour = np.random.default_rng(seed), seed % 3
    images = random.integers(0, 90, (count, 8, 8, 3), dtype=np.uint8)
    images[::2, :, :4, colour] += 160
    images[1::2, :4, :, colour] += 160
    return images


def make_model(folder: Path, flip: bool) -> Path:
    # Without a trial the network has a say; to the eye alone an image and its mirror image are the same anyway.
    settings = {**TINY_GCAB, "training.batch_size": 8, "augment.flip": flip, "options.trial": False}
    model = ContinualClassifier(epochs=2, device="cpu", image_size=8, settings=settings)
    for task in range(2):
        model.learn(random_images(24, task), [f"class {2 * task + index % 2}" for index in range(24)], held_out=0.25)
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("mirrors") / "model", flip=True)


@pytest.fixture(scope="module")
def one_way(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("letters") / "model", flip=False)


@pytest.fixture(scope="module")
def model(folder: Path) -> ContinualClassifier:
    return ContinualClassifier.load(folder, device="cpu")


def averaged(model: ContinualClassifier, images: np.ndarray) -> Tensor:
    return (model.logits(images) + model.logits(images[:, :, ::-1].copy())) / 2


def test_logits_are_the_mean_over_both_views(model: ContinualClassifier) -> None:
    images = random_images(9, seed=5)
    expected = averaged(model, images)
    assert torch.allclose(model.logits(images, views=2), expected, atol=1e-4)
    assert not torch.allclose(model.logits(images), expected, atol=1e-2)
    mirrored = model.logits(images[:, :, ::-1].copy(), views=2)
    assert torch.allclose(mirrored, expected, atol=1e-4), "a mirrored image gets the same answer"
    assert model.predict(images, views=2).tolist() == [model.classes[i] for i in expected.argmax(dim=1).tolist()]
    probabilities = model.calibration.probabilities(expected).numpy()
    assert np.allclose(model.predict_proba(images, views=2), probabilities, atol=1e-4)


def test_files_are_judged_by_both_views(model: ContinualClassifier, tmp_path: Path) -> None:
    files = some_photos(tmp_path / "photos", 5)
    pixels = as_images(files, 8)
    expected = model.calibration.probabilities(model.logits(pixels, views=2)).max(dim=1).values.tolist()
    found = [prediction.top[0].probability for prediction in predict_files(model, files, batch=2, views=2)]
    assert found == pytest.approx(expected, abs=1e-4)


def test_the_command_takes_two_views(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [file] = some_photos(tmp_path / "photos", 1)
    said = {}
    for views in ("1", "2"):
        assert main(["predict", str(folder), str(file), "--json", "--views", views, "--device", "cpu"]) == 0
        said[views] = json.loads(capsys.readouterr().out)["top"][0]["probability"]
    assert said["1"] != said["2"]


@pytest.mark.parametrize("inference", [Inference("cpu"), Inference("cpu", "bfloat16")])
def test_a_served_model_looks_at_both_views(folder: Path, model: ContinualClassifier, inference: Inference) -> None:
    served = ServedModel.load(folder, Inference(inference.device, inference.precision, views=2))
    images = random_images(3, seed=6)
    found = torch.stack([scores.probabilities for scores in served.scores(as_images(images, 8), [False] * 3)])
    expected = torch.from_numpy(model.predict_proba(images, views=2))
    assert torch.allclose(found, expected, atol=1e-4 if inference.precision == "float32" else 0.1)


def test_models_to_which_a_mirrored_image_is_another_thing_refuse(
    one_way: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ContinualClassifier.load(one_way, device="cpu")
    with pytest.raises(GcabError, match=REFUSED):
        model.predict(random_images(2), views=2)
    with pytest.raises(GcabError, match=REFUSED):
        ServedModel.load(one_way, Inference("cpu", views=2))
    [file] = some_photos(tmp_path / "photos", 1)
    assert main(["predict", str(one_way), str(file), "--views", "2", "--device", "cpu"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a mirrored image is another thing" in " ".join(captured.err.split())
    assert len(model.predict(random_images(2), views=1)) == 2


@pytest.mark.parametrize("views", [0, 3, -1])
def test_other_numbers_of_views_are_refused(model: ContinualClassifier, views: int) -> None:
    with pytest.raises(GcabError, match=f"views is {views}: give 1, or 2"):
        model.logits(random_images(2), views=views)


def test_a_run_is_tested_with_both_views(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [*train_flags("gcab", {"training.epochs": 1}), "--device", "cpu"]
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "digits/2", *small, *runs, "--augment.flip", "true"]) == 0
    [run] = find_runs([tmp_path])
    one, two = (evaluate_run(run, None, torch.device("cpu"), views) for views in (1, 2))
    assert one.now == one.recorded == two.recorded
    for name, logits in two.decisions.items():
        same = np.allclose(logits, one.decisions[name], atol=1e-3)
        assert same == (name == EYE), "the eye always looks at both"
    capsys.readouterr()
    assert main(["evaluate", str(run.path), "--views", "2", "--device", "cpu"]) == 0
    line = f"acc_tag: {two.now['acc_tag']:.2f} % (recorded with one view {one.now['acc_tag']:.2f} %)"
    assert line in capsys.readouterr().out.splitlines()
