"""The promise of gcab/runs/model.py: what an earlier version wrote is read, and predicts the same."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from gcab import ContinualClassifier
from gcab.version import VERSION

MODELS = sorted((Path(__file__).parent / "models").iterdir())
ASKED = (np.arange(4 * 8 * 8 * 3) * 37 % 251).astype(np.uint8).reshape(4, 8, 8, 3)


def test_every_version_is_there() -> None:
    assert VERSION in [folder.name for folder in MODELS]


@pytest.mark.parametrize("version", MODELS, ids=lambda folder: folder.name)
def test_a_model_of_an_earlier_version_predicts_as_it_did(version: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(version / "model", tmp_path / "model")
    model = ContinualClassifier.load(folder, device="cpu")
    assert model.classes == ["ash", "elm", "fir", "oak", "yew"]
    assert [task.names for task in model.tasks] == [("ash", "elm"), ("fir", "oak", "yew")]
    assert (model.image_size, model.generation) == (8, 0)
    expected = torch.tensor(json.loads((version / "expected.json").read_text()))
    torch.testing.assert_close(model.logits(ASKED), expected, rtol=1e-4, atol=1e-4)
    assert len(model.taught) == 2


def test_a_model_from_before_records_learns_on_and_starts_them(tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS[0] / "model", tmp_path / "model")
    model = ContinualClassifier.load(folder, device="cpu")
    assert [entry.accuracy for entry in model.taught] == [None, None]
    assert model.calibration.images == 0
    assert model.unknown(ASKED).tolist() == [0, 0, 0, 0]
    model.learn(np.repeat(ASKED, 3, axis=0), ["hazel", "sloe"] * 6, held_out=0.2)
    model.save(tmp_path / "next")
    again = ContinualClassifier.load(tmp_path / "next", device="cpu")
    assert [entry.classes for entry in again.taught] == [2, 3, 2]
    assert again.taught[2].held_out == 2
    assert again.calibration == model.calibration != ContinualClassifier().calibration
