"""What is read from a folder computes what the transformers library computes, and bad files get one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from helpers.encoders import KINDS, PREPROCESSOR, SIDE, onnx_encoder, save, transformer

from gcab.errors import GcabError
from gcab.model.encoder import EncoderConfig
from gcab.pretrained.licence import UNKNOWN, licence_in
from gcab.pretrained.preprocessing import IMAGENET, Preprocessing, preprocessing_of
from gcab.pretrained.source import build_encoder, describe, read_pretrained
from gcab.pretrained.vision_transformer import VisionTransformer

pytestmark = pytest.mark.varied

CONFIG = EncoderConfig("pretrained")


def images(side: int = SIDE) -> torch.Tensor:
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_tokens_are_those_of_the_library(kind: str, tmp_path: Path) -> None:
    """Of CLIP, whose library norms the class token alone, that one."""
    model = transformer(kind)
    folder = save(model, tmp_path / kind, {**PREPROCESSOR, "size": SIDE})
    tower = getattr(model, "vit", getattr(model, "vision_model", model))
    expected = tower(pixel_values=images())
    encoder = build_encoder(CONFIG, read_pretrained(str(folder)))
    assert isinstance(encoder, VisionTransformer)
    tokens = encoder.encoded(images())
    if kind.startswith("clip"):
        torch.testing.assert_close(tokens[:, 0], expected.pooler_output, rtol=1e-4, atol=1e-4)
    else:
        torch.testing.assert_close(tokens, expected.last_hidden_state, rtol=1e-4, atol=1e-4)
    assert encoder(images()).shape == (2, 49, 32)
    torch.testing.assert_close(encoder.summary(images())[:, :32], tokens[:, 0])


@torch.no_grad()
def test_positions_follow_the_size_as_in_the_library(tmp_path: Path) -> None:
    """An encoder of 32 pixels that is to see 48."""
    model = transformer("dinov2")
    folder = save(model, tmp_path / "large", {**PREPROCESSOR, "size": 48, "do_center_crop": False})
    expected = model(pixel_values=images(48)).last_hidden_state
    encoder = build_encoder(CONFIG, read_pretrained(str(folder)))
    assert isinstance(encoder, VisionTransformer)
    torch.testing.assert_close(encoder.encoded(images(48)), expected, rtol=1e-4, atol=1e-4)


def test_weights_in_an_old_file_are_the_same(vit: Path, tmp_path: Path) -> None:
    old = shutil.copytree(vit, tmp_path / "old")
    torch.save(safetensors.torch.load_file(old / "model.safetensors"), old / "pytorch_model.bin")
    (old / "model.safetensors").unlink()
    own, its = read_pretrained(str(vit)), read_pretrained(str(old))
    assert all(torch.equal(own[name], its[name]) for name in own)


def test_the_centre_is_cut_at_the_encoders_scale(vit: Path) -> None:
    encoder = build_encoder(CONFIG, read_pretrained(str(vit)))
    photo = images(40)
    assert torch.equal(encoder.prepared(photo), photo[:, :, 4:36, 4:36])
    assert encoder.prepared(images(20)).shape == (2, 3, SIDE, SIDE)


def test_what_is_known_of_it(vit: Path, graph: Path) -> None:
    folder, file = describe(str(vit)), describe(str(graph))
    assert (folder.kind, folder.origin, folder.licence, folder.resize, folder.crop) == (
        "vit", "tiny-vit", "apache-2.0", 40, SIDE,
    )  # fmt: skip
    assert (file.kind, file.origin, file.licence, file.crop) == ("onnx", "filters.onnx", UNKNOWN, SIDE)
    assert "ImageNet" in file.preprocessing
    assert folder.preprocessing == "from preprocessor_config.json"


def test_a_neighbour_that_prepares_images_of_another_size_is_refused(tmp_path: Path) -> None:
    file = onnx_encoder(tmp_path / "filters.onnx")
    (tmp_path / "filters.onnx.json").write_text(json.dumps({"size": 2 * SIDE, "crop_size": SIDE}))  # and cuts nothing
    with pytest.raises(
        GcabError, match=f'takes images of {SIDE} pixels, and would be given {2 * SIDE}.*"crop_size" to'
    ):
        read_pretrained(str(file))


def test_an_onnx_file_is_cut_where_its_neighbour_says(graph: Path, tmp_path: Path) -> None:
    """A classifier's last layer is left out; the features before it are those of the file without one."""
    file = onnx_encoder(tmp_path / "classifier.onnx", answer=2)
    with pytest.raises(GcabError, match=r"2 numbers an image.*classifier\.onnx\.json"):
        read_pretrained(str(file))
    told = {"output": "map", "licence": "MIT", "origin": "somewhere", "image_mean": [0, 0, 0]}
    (tmp_path / "classifier.onnx.json").write_text(json.dumps(told))
    cut, whole = read_pretrained(str(file)), read_pretrained(str(graph))
    assert (cut.description.licence, cut.description.origin, cut.mean) == ("MIT", "somewhere", (0.0, 0.0, 0.0))
    assert cut["file"].numel() < file.stat().st_size
    features = [build_encoder(CONFIG, weights).summary(images()) for weights in (cut, whole)]
    torch.testing.assert_close(*features)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"size": 256, "crop_size": 224, "do_center_crop": True}, (256, 224, *IMAGENET)),
        ({"size": {"height": 224, "width": 224}}, (224, 224, *IMAGENET)),
        ({"size": {"shortest_edge": 100}, "do_normalize": False}, (100, 100, (0, 0, 0), (1, 1, 1))),
        ({"do_resize": False}, (64, 48, *IMAGENET)),
        ({"size": 9, "do_rescale": False, "image_mean": [255, 0, 0], "image_std": [255, 255, 255]},
         (9, 9, (1, 0, 0), (1, 1, 1))),
    ],
)  # fmt: skip
def test_preprocessing_as_these_files_say_it(content: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = preprocessing_of(content, Preprocessing(64, 48, *IMAGENET, "usual"), "a file")
    assert (found.resize, found.crop) == expected[:2]
    assert found.mean == pytest.approx(expected[2])
    assert found.std == pytest.approx(expected[3])


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({"README.md": "---\nlicense: mit\n---\n"}, "mit"),
        ({"README.md": "---\nlicense: other\nlicense_name: some-terms\n---\n"}, "some-terms"),
        ({"README.md": "no head", "LICENSE": "\n  Apache License\n Version 2.0\n"}, "Apache License"),
        ({"README.md": "---\ntags: []\n---\nlicense: mit\n"}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_a_licence_is_found_or_unknown(files: dict[str, str], licence: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert licence_in(tmp_path) == licence


def change_json(file: Path, **entries: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "is damaged"),
    "unknown": (lambda folder: change_json(folder / "config.json", model_type="swin"), "architecture.*'swin'"),
    "giant": (lambda folder: change_json(folder / "config.json", use_swiglu_ffn=True), "gated MLPs"),
    "grey": (lambda folder: change_json(folder / "config.json", num_channels=1), "1 channels"),
    "sizes": (lambda folder: change_json(folder / "config.json", num_attention_heads=5), "that can be built"),
    "no number": (lambda folder: change_json(folder / "config.json", hidden_size="x"), "that can be built"),
    "other sizes": (lambda folder: change_json(folder / "config.json", patch_size=4), "do not fit its config.json"),
    "more blocks": (lambda folder: change_json(folder / "config.json", num_hidden_layers=3), "lack encoder.layer.2"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    "cut short": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        "model.safetensors is damaged",
    ),
    "preparation": (
        lambda folder: change_json(folder / "preprocessor_config.json", size={"height": 3, "width": 4}),
        "which is no square",
    ),
    "no deviation": (
        lambda folder: change_json(folder / "preprocessor_config.json", image_std=[0, 1, 1]),
        "mean or deviation",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_folder_is_refused_in_a_sentence(damage: str, dino: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dino, tmp_path / "bad")
    change, sentence = DAMAGES[damage]
    change(folder)
    with pytest.raises(GcabError, match=sentence) as caught:
        read_pretrained(str(folder))
    assert str(caught.value).endswith(".")


def test_a_bad_file_is_refused_in_a_sentence(graph: Path, tmp_path: Path) -> None:
    damaged, other = tmp_path / "damaged.onnx", tmp_path / "weights.bin"
    damaged.write_bytes(graph.read_bytes()[:900])
    other.write_bytes(b"x")
    two = onnx_encoder(tmp_path / "two.onnx", inputs=2)
    for file, sentence in (
        (two, r"2 inputs \(image, mask\)"),
        (damaged, "is damaged|does not run"),
        (other, "is no encoder"),
        (tmp_path / "none.onnx", "there is no folder or file"),
    ):
        with pytest.raises(GcabError, match=sentence):
            read_pretrained(str(file))


def test_a_name_that_cannot_be_fetched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def no_net(*_: Any, **__: Any) -> str:
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_net)
    with pytest.raises(GcabError, match=r"can be fetched \(no route to host\)"):
        read_pretrained("facebook/dinov2-small")


def test_a_name_is_fetched(dino: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(dino))
    assert read_pretrained("some/name").description.origin == "some/name at tiny-dino"
