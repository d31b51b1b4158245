"""Tiny pretrained encoders of random weights: folders as the transformers library saves them, and ONNX files."""

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

SIDE, PATCH, WIDTH = 32, 8, 32
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": SIDE,
    "patch_size": PATCH,
}
DINO_SIZES = {key: value for key, value in SIZES.items() if key != "intermediate_size"} | {"mlp_ratio": 2}
TEXT = {**SIZES, "vocab_size": 9, "bos_token_id": 0, "eos_token_id": 1}
KINDS = ("vit", "vit-classifier", "deit", "dinov2", "dinov2_with_registers", "clip_vision_model", "clip")
PREPROCESSOR = {
    "do_resize": True,
    "size": {"shortest_edge": 40},
    "do_center_crop": True,
    "crop_size": {"height": SIDE, "width": SIDE},
    "resample": 3,
    "rescale_factor": 1 / 255,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.25, 0.3],
}


def transformer(kind: str) -> Any:
    """A model of the transformers library whose every tensor is random, so that none can be confused with another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t: Any = importlib.import_module("transformers")
        made = {
            "vit": lambda: t.ViTModel(t.ViTConfig(**SIZES)),
            "vit-classifier": lambda: t.ViTForImageClassification(t.ViTConfig(**SIZES)),
            "deit": lambda: t.DeiTModel(t.DeiTConfig(**SIZES)),
            "dinov2": lambda: t.Dinov2Model(t.Dinov2Config(**DINO_SIZES)),
            "dinov2_with_registers": lambda: t.Dinov2WithRegistersModel(t.Dinov2WithRegistersConfig(**DINO_SIZES)),
            "clip_vision_model": lambda: t.CLIPVisionModel(t.CLIPVisionConfig(**SIZES)),
            "clip": lambda: t.CLIPModel(t.CLIPConfig(vision_config=SIZES, text_config=TEXT)),
        }
        model = made[kind]().eval()
    random = torch.Generator().manual_seed(len(kind))
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=random))
    return model


def save(model: Any, folder: Path, preprocessor: dict[str, Any] | None = PREPROCESSOR) -> Path:
    """As `save_pretrained` writes it, with a model card."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    if preprocessor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\ntags: [vision]\n---\n# An encoder\n")
    return folder


def onnx_encoder(file: Path, inputs: int = 1, width: int = 24, answer: int = 0) -> Path:
    """Patches, compared with random filters and averaged; `answer`: numbers that a last layer makes of the features."""
    random = np.random.default_rng(0)
    filters = random.normal(size=(width, 3, PATCH, PATCH)).astype(np.float32)
    weights = [numpy_helper.from_array(filters, "filters")]
    nodes = [
        helper.make_node("Conv", ["image", "filters"], ["answers"], strides=[PATCH, PATCH]),
        helper.make_node("Relu", ["answers"], ["map"]),
        helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
    ]
    outputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", width])]
    if answer:
        weights.append(numpy_helper.from_array(random.normal(size=(width, answer)).astype(np.float32), "last"))
        nodes.append(helper.make_node("MatMul", ["features", "last"], ["answer"]))
        outputs = [helper.make_tensor_value_info("answer", TensorProto.FLOAT, ["n", answer])]
    images = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, SIDE, SIDE]) for name in ("image", "mask")
    ]
    graph = helper.make_graph(nodes, "encoder", images[:inputs], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, file)
    return file
