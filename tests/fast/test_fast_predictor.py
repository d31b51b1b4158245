"""Predictions for servers are those of the training-time model, within a stated tolerance."""

import os
from dataclasses import replace

import pytest
import torch

from gcab.config import resolve
from gcab.data.tasks import Task, TaskImages
from gcab.errors import GcabError
from gcab.fast.inference import LARGEST, RecordedPredictor, fast_predictor
from gcab.methods.gcab import Gcab
from gcab.methods.method import Method, grow
from gcab.profiles import PROFILES
from gcab.runs.assemble import build_method
from gcab.training.trainer import finish

FLOAT32, BFLOAT16 = 1e-5, 5e-2  # of the largest logit
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
SLOW = pytest.mark.skipif("GCAB_SLOW" not in os.environ, reason="compiles for minutes: set GCAB_SLOW=1 to run it")


def learned(name: str, profile: str, device: str) -> Method:
    """Three tasks with random gates, heads and projectors."""
    changes = {"encoder.width": 64, "encoder.blocks": 2, "augment.flip": True}
    config = resolve("digits/5", name, profile, changes=changes)
    method, random = build_method(config).to(device), torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (24, 3, 8, 8), dtype=torch.uint8, generator=random)
    for index in range(3):
        task = Task(index, 2 * index, ("a", "b"))
        grow(method, task, config.seed)
        finish(method.eval(), task, TaskImages(images, 2 * index + torch.arange(24) % 2), config.seed)
    if isinstance(method, Gcab) and method.referee is not None:
        method.referee.weights.copy_(torch.tensor([0.3, 0.01, 3.0]))  # every opinion is heard
    return method


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "profile"), [*(("gcab", profile) for profile in PROFILES), ("finetune", "official")])
def test_fast_predictions_are_those_of_predict(name: str, profile: str, device: str) -> None:
    method = learned(name, profile, device)
    exact, low = fast_predictor(method), fast_predictor(method, bfloat16=True)
    assert isinstance(exact, RecordedPredictor) == (device == "cuda")
    for count in (1, 3, 16):
        images = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(count)).to(device)
        with torch.inference_mode():
            expected = method.predict(images).float()
        assert error(exact(images), expected) <= FLOAT32
        assert error(low(images), expected) <= BFLOAT16
        assert low(images).dtype == torch.float32


@pytest.mark.parametrize("name", ["gcab", "eye", "finetune"])
def test_the_device_is_that_of_the_weights_whatever_settings_a_network_keeps(name: str) -> None:
    assert learned(name, "extended", "cpu").to("meta").device.type == "meta"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["gcab", "eye", "finetune"])
def test_predictions_are_recorded_on_a_gpu_alone(name: str, device: str) -> None:
    assert isinstance(fast_predictor(learned(name, "extended", device)), RecordedPredictor) == (device == "cuda")


def test_predictions_that_cannot_be_recorded_are_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    method = learned("finetune", "official", "cpu")
    images = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    recorded = RecordedPredictor(method.predict, method, bfloat16=False, compile_blocks=False)

    def fail(held: torch.Tensor) -> None:
        raise RuntimeError(f"no room for {len(held)} images")

    monkeypatch.setattr(recorded, "record", fail)
    with pytest.warns(UserWarning, match="recording them failed: no room for 4 images"):
        found = recorded(images)
    with torch.inference_mode():
        assert error(found, method.predict(images)) <= FLOAT32
    recorded(images)  # and once is enough


@pytest.mark.repeats
@pytest.mark.parametrize("device", DEVICES)
def test_batches_larger_than_the_largest_go_in_parts(device: str) -> None:
    method = learned("gcab", "extended", device)
    images = torch.randn(LARGEST + 3, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(device)
    found = fast_predictor(method)(images)
    assert found.shape == (LARGEST + 3, 6)
    with torch.inference_mode():
        assert error(found[-3:], method.predict(images[-3:])) <= FLOAT32


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=SLOW)])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["gcab", "eye", "untrained", "finetune"])
def test_two_views_are_averaged_however_fast(name: str, device: str, compiled: bool) -> None:
    method = learned(name, "extended", device)
    predict = fast_predictor(method, compile_blocks=compiled, views=2)
    for count in (1, 3):
        images = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(count)).to(device)
        with torch.inference_mode():
            expected = (method.predict(images) + method.predict(images.flip(3))) / 2
        assert error(predict(images), expected) <= FLOAT32
        assert error(predict(images.flip(3)), expected) <= FLOAT32
    method.setting = replace(method.setting, mirrors=False)
    with pytest.raises(GcabError, match="a mirrored image is another thing"):
        fast_predictor(method, views=2)
