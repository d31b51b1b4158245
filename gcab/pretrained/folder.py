"""A folder as Hugging Face's `transformers` saves it, read without that library: ViT, DeiT, DINOv2 and CLIP.

config.json                  the architecture and its sizes
model.safetensors            the weights; or several with an index, or pytorch_model.bin
preprocessor_config.json     how images are prepared
README.md, LICENSE           the licence
"""

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from gcab.errors import GcabError
from gcab.model.encoder import EncoderConfig, resized_position
from gcab.pretrained.description import Channels, Description, PretrainedWeights
from gcab.pretrained.licence import licence_in
from gcab.pretrained.preprocessing import CLIP, HALVES, IMAGENET, Preprocessing, find_preprocessing, read_json
from gcab.pretrained.vision_transformer import VisionShape, VisionTransformer

CONFIG, PREPROCESSORS = "config.json", ("preprocessor_config.json", "processor_config.json")
WHOLE, INDEX, OLD = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"


@dataclass(frozen=True)
class Names:
    """The names of an architecture's tensors; those of a block follow its number."""

    block: str
    query: str
    key: str
    value: str
    output: str
    first: str
    second: str
    norm_attention: str
    norm_mlp: str
    scales: tuple[str, str] | None = None  # behind the attention and behind the MLP
    class_token: str = "embeddings.cls_token"
    position: str = "embeddings.position_embeddings"
    patches: str = "embeddings.patch_embeddings.projection"
    norm: str = "layernorm"
    pre_norm: str | None = None


@dataclass(frozen=True)
class Family:
    """An architecture: its names, and the defaults of its configuration."""

    names: Names
    defaults: Mapping[str, Any]
    pixels: tuple[Channels, Channels]  # mean and deviation
    sizes: tuple[int, int] | None = None  # resize and crop; None: as large as it was trained with


SIZES = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224, "patch_size": 16}
ATTENTION = (
    "attention.attention.query",
    "attention.attention.key",
    "attention.attention.value",
    "attention.output.dense",
)
VIT = Names(
    "encoder.layer",
    *ATTENTION,
    first="intermediate.dense",
    second="output.dense",
    norm_attention="layernorm_before",
    norm_mlp="layernorm_after",
)
DINO = Names(
    "encoder.layer",
    *ATTENTION,
    first="mlp.fc1",
    second="mlp.fc2",
    norm_attention="norm1",
    norm_mlp="norm2",
    scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
)
CLIP_NAMES = Names(
    "encoder.layers",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.out_proj",
    "mlp.fc1",
    "mlp.fc2",
    "layer_norm1",
    "layer_norm2",
    class_token="embeddings.class_embedding",
    position="embeddings.position_embedding.weight",
    patches="embeddings.patch_embedding",
    norm="post_layernorm",
    pre_norm="pre_layrnorm",  # so it is spelled there
)
VIT_DEFAULTS = {**SIZES, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "intermediate_size": 3072}
DINO_DEFAULTS = {**SIZES, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "patch_size": 14, "mlp_ratio": 4}
CLIP_DEFAULTS = {**VIT_DEFAULTS, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "patch_size": 32}
FAMILIES = {
    "vit": Family(VIT, VIT_DEFAULTS, HALVES),
    "deit": Family(VIT, VIT_DEFAULTS, IMAGENET),
    "dinov2": Family(DINO, DINO_DEFAULTS, IMAGENET, (256, 224)),
    "dinov2_with_registers": Family(DINO, DINO_DEFAULTS, IMAGENET, (256, 224)),
    "clip_vision_model": Family(CLIP_NAMES, CLIP_DEFAULTS, CLIP),
}


def describe_folder(folder: Path, origin: str) -> tuple[Description, Preprocessing]:
    """What the folder says of itself; the weights are not parsed yet, but their bytes are part of the digest."""
    config, family = configuration(folder)
    try:
        shape = shape_of(config)
        size = family.sizes or (int(config["image_size"]),) * 2
        default = Preprocessing(*size, *family.pixels, "as usual for this architecture (it has no preprocessor_config)")
        found = find_preprocessing(tuple(folder / name for name in PREPROCESSORS), default)
        if found.crop < shape.patch:
            raise ValueError(f"images of {found.crop} pixels have no patch of {shape.patch}")
        digest = hashlib.sha256()
        for file in weight_files(folder):
            digest.update(file.read_bytes())
        description = Description(
            kind=config["model_type"],
            origin=origin,
            licence=licence_in(folder),
            digest=digest.hexdigest(),
            resize=found.resize,
            crop=found.crop,
            preprocessing=found.words,
            shape=asdict(shape),
        )
    except (TypeError, ValueError) as problem:
        raise GcabError(f"{folder / CONFIG} describes no encoder that can be built ({problem}): check it.") from None
    except OSError as problem:
        raise GcabError(f"{folder} cannot be read ({problem.strerror}): check its permissions.") from None
    return description, found


def configuration(folder: Path) -> tuple[dict[str, Any], Family]:
    """The settings of the image tower, and its family."""
    if not (folder / CONFIG).is_file():
        raise GcabError(
            f"{folder} has no config.json, so it is no encoder of the transformers library: name a folder saved by "
            "save_pretrained, or an ONNX file."
        )
    config = read_json(folder / CONFIG)
    if config.get("model_type") == "clip":
        config = {"model_type": "clip_vision_model", **(config.get("vision_config") or {})}
    kind = config.get("model_type")
    if kind not in FAMILIES:
        known = "ViT, DeiT, DINOv2 and CLIP"
        raise GcabError(f"the architecture of {folder} is {kind!r}: gcab knows {known}; others work as an ONNX file.")
    if config.get("use_swiglu_ffn"):
        raise GcabError(f"{folder} has gated MLPs (use_swiglu_ffn), as only giant models do: take a smaller one.")
    if config.get("num_channels", 3) != 3:
        raise GcabError(f"{folder} sees {config['num_channels']} channels: gcab has photos with three.")
    return {**FAMILIES[kind].defaults, **config}, FAMILIES[kind]


def shape_of(config: Mapping[str, Any]) -> VisionShape:
    width = config["hidden_size"]
    return VisionShape(
        width=width,
        blocks=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        hidden=int(width * config["mlp_ratio"]) if "mlp_ratio" in config else config["intermediate_size"],
        patch=config["patch_size"],
        prefix=1 + (config["model_type"] == "deit") + registers(config),
        activation=config["hidden_act"],
        epsilon=float(config["layer_norm_eps"]),
        pre_norm=config["model_type"] == "clip_vision_model",
    )


def registers(config: Mapping[str, Any]) -> int:
    return int(config.get("num_register_tokens", 4)) if config["model_type"] == "dinov2_with_registers" else 0


def weight_files(folder: Path) -> Sequence[Path]:
    """The files with the tensors; safetensors where there is a choice."""
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    if (folder / INDEX).is_file():
        table = read_json(folder / INDEX).get("weight_map")
        if not isinstance(table, dict) or not table:
            raise GcabError(f"{folder / INDEX} is damaged, as it names no file: fetch it again.")
        return [folder / Path(str(name)).name for name in sorted(set(table.values()))]
    if (folder / OLD).is_file():
        return [folder / OLD]
    raise GcabError(f"{folder} has no weights: {WHOLE} or {OLD} is missing.")


def read_folder(folder: Path, origin: str) -> PretrainedWeights:
    """The encoder in a folder; what is damaged or does not fit its config.json is refused in one sentence."""
    description, found = describe_folder(folder, origin)
    tensors: dict[str, Tensor] = {}
    for file in weight_files(folder):
        tensors |= tensors_in(file)
    config, family = configuration(folder)
    try:
        converted = convert(Source(tensors, family.names), VisionShape(**description.shape), config, description.crop)
        VisionTransformer(EncoderConfig("pretrained"), description).load_state_dict(converted)
    except KeyError as problem:
        raise GcabError(f"the weights in {folder} lack {problem.args[0]}: fetch them again.") from None
    except (RuntimeError, IndexError):
        raise GcabError(f"the weights in {folder} do not fit its config.json: fetch both again.") from None
    if not all(bool(tensor.isfinite().all()) for tensor in converted.values()):
        raise GcabError(f"the weights in {folder} are not all numbers: fetch them again.")
    return PretrainedWeights(description, found.mean, found.std, converted)


def tensors_in(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return safetensors.torch.load(file.read_bytes())
        found = torch.load(file, map_location="cpu", weights_only=True)
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}
    except FileNotFoundError:
        raise GcabError(f"{file} is missing, which the index beside it names: fetch it again.") from None
    except OSError as problem:
        raise GcabError(f"{file} cannot be read ({problem.strerror}): check its permissions.") from None
    except (SafetensorError, ValueError, RuntimeError, EOFError, AttributeError, pickle.UnpicklingError):
        raise GcabError(f"{file} is damaged: fetch it again.") from None


class Source:
    """Tensors by the names of their family, whatever model they are a part of."""

    def __init__(self, tensors: Mapping[str, Tensor], names: Names) -> None:
        self.tensors, self.names = tensors, names
        whole = [name for name in tensors if f".{name}".endswith(f".{names.class_token}")]
        if not whole:
            raise KeyError(names.class_token)
        self.before = whole[0].removesuffix(names.class_token)  # such as "vit." or "vision_model."

    def __call__(self, name: str) -> Tensor:
        if self.before + name not in self.tensors:
            raise KeyError(self.before + name)
        return self.tensors[self.before + name].float()

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """A matrix and its bias; zeros where it has none."""
        weight = self(f"{name}.weight")
        has_bias = f"{self.before}{name}.bias" in self.tensors
        return weight, self(f"{name}.bias") if has_bias else weight.new_zeros(len(weight))


def convert(source: Source, shape: VisionShape, config: Mapping[str, Any], crop: int) -> dict[str, Tensor]:
    """Tensors as `VisionTransformer` has them."""
    names, found = source.names, dict[str, Tensor]()

    def put(place: str, weight: Tensor, bias: Tensor) -> None:
        found[f"{place}.weight"], found[f"{place}.bias"] = weight.contiguous(), bias.contiguous()

    with_position = shape.prefix - registers(config)
    own = [source(names.class_token).reshape(1, 1, -1)]
    if with_position > 1:
        own.append(source("embeddings.distillation_token").reshape(1, 1, -1))
    position = source(names.position).reshape(1, -1, shape.width)
    prefix = [torch.cat(own, dim=1) + position[:, :with_position]]
    if registers(config):
        prefix.append(source("embeddings.register_tokens").reshape(1, -1, shape.width))
    found["prefix"] = torch.cat(prefix, dim=1)
    trained, side = config["image_size"] // shape.patch, crop // shape.patch
    found["position"] = resized_position(position[:, with_position:].unflatten(1, (trained, trained)), (side, side))
    put("patches", *source.linear(names.patches))
    if names.pre_norm:
        put("pre_norm", *source.linear(names.pre_norm))
    put("norm", *source.linear(names.norm))
    for index in range(shape.blocks):
        own_block, place = f"{names.block}.{index}.", f"layers.{index}."
        parts = [source.linear(own_block + name) for name in (names.query, names.key, names.value)]
        put(f"{place}attention.query_key_value", *(torch.cat(part) for part in zip(*parts, strict=True)))
        put(f"{place}norm_attention", *source.linear(own_block + names.norm_attention))
        put(f"{place}norm_mlp", *source.linear(own_block + names.norm_mlp))
        put(f"{place}first", *source.linear(own_block + names.first))
        for branch, name in enumerate((names.output, names.second)):
            weight, bias = source.linear(own_block + name)
            if names.scales:  # λ (W x + b) = (λ W) x + λ b
                scale = source(own_block + names.scales[branch])
                weight, bias = weight * scale[:, None], bias * scale
            put(place + ("attention.output", "second")[branch], weight, bias)
    return found
