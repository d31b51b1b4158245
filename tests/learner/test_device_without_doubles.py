"""A device without double precision, as Apple's GPUs are, learns and predicts what the host does."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers.settings import tiny
from helpers.single_precision import DEVICE, without_doubles

from gcab.classifier.learner import ContinualClassifier
from gcab.model.exact import Exact, in_double

pytestmark = pytest.mark.repeats

RESIZED = {"augment.crop": "resized", "augment.randaugment": "true", "augment.operations": "1"}


def taught(method: str, settings: dict[str, Any]) -> tuple[ContinualClassifier, torch.Tensor]:
    """A model of two lessons, and what it says of a few images."""
    random = np.random.default_rng(0)
    model = ContinualClassifier(method, image_size=16, epochs=1, device="cpu", settings=tiny(method) | settings)
    for names in ("ab", "cd"):
        images = random.integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
        model.learn(images, [name for name in names for _ in range(6)], held_out=0.5)
    return model, model.logits(random.integers(0, 256, (4, 16, 16, 3), dtype=np.uint8))


@pytest.mark.parametrize(("method", "settings"), [("gcab", RESIZED), ("frozen", {})])
def test_a_device_without_doubles_gives_the_host_s_answers(
    method: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with without_doubles(monkeypatch):
        model, logits = taught(method, settings)
        exact = [part for part in model.method.modules() if isinstance(part, Exact)]
        others = {value.device for name, value in model.method.named_parameters()}
    assert {value.device.type for part in exact for value in part.buffers()} <= {"cpu"}
    assert others <= {DEVICE}
    assert exact
    torch.testing.assert_close(logits, taught(method, settings)[1], atol=1e-4, rtol=1e-4)


def test_only_mps_is_spared_doubles() -> None:
    assert [in_double(torch.device(name)).type for name in ("mps", "cuda", "cpu")] == ["cpu", "cuda", "cpu"]
