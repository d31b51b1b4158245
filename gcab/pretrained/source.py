"""From what a user names to an encoder: a folder of `transformers`, an ONNX file, or a name on Hugging Face's hub."""

import importlib.util
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from gcab.errors import GcabError
from gcab.model.encoder import EncoderConfig
from gcab.pretrained.description import ONNX, Description, PretrainedWeights
from gcab.pretrained.encoder import PretrainedEncoder
from gcab.pretrained.folder import describe_folder, read_folder
from gcab.pretrained.onnx_file import OnnxEncoder, read_onnx
from gcab.pretrained.vision_transformer import VisionTransformer

HUB_NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
FETCHED = (
    "config.json",
    "*processor_config.json",
    "model*.safetensors",
    "*.safetensors.index.json",
    "README.md",
    "LICENSE*",
)


def names_encoder(reference: str) -> bool:
    """Whether this is a place or a name on the hub, rather than a plain word."""
    return "/" in reference or "\\" in reference or Path(reference).exists()


def read_pretrained(reference: str) -> PretrainedWeights:
    """The encoder with all its tensors."""
    place, origin = found(reference)
    return read_folder(place, origin) if place.is_dir() else read_onnx(place, origin)


def describe(reference: str) -> Description:
    """The description of an encoder, cached, as a configuration asks for it several times."""
    place, origin = found(reference)
    beside = place if place.is_dir() else place.parent
    facts = ((file.name, file.stat()) for file in sorted(beside.iterdir()) if file.is_file())
    return _describe(place, origin, tuple((name, fact.st_mtime_ns, fact.st_size) for name, fact in facts))


@lru_cache(maxsize=8)
def _describe(place: Path, origin: str, files: tuple[tuple[str, int, int], ...]) -> Description:  # noqa: ARG001
    return describe_folder(place, origin)[0] if place.is_dir() else read_onnx(place, origin).description


def found(reference: str) -> tuple[Path, str]:
    """The place of an encoder on this machine, fetched if need be, and its name."""
    place = Path(reference)
    if place.is_dir():
        return place, place.resolve().name
    if place.is_file():
        if place.suffix.lower() != ".onnx":
            raise GcabError(f"{place} is no encoder: name a folder of the transformers library or an .onnx file.")
        return place, place.name
    if not HUB_NAME.fullmatch(reference):
        raise GcabError(f"there is no folder or file '{reference}': name an encoder that exists.")
    return fetched(reference)


def fetched(name: str) -> tuple[Path, str]:
    """A model of the hub, from this machine's cache or from the net, and its name with the commit."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise GcabError(
            f"there is no folder '{name}', and to fetch an encoder of that name huggingface_hub is missing: "
            "pip install 'gcab[pretrained]'."
        )
    from huggingface_hub import snapshot_download

    try:
        place = Path(snapshot_download(name, allow_patterns=list(FETCHED)))
    except Exception as problem:  # of the net, of the hub, of the disk
        reason = str(problem).strip().partition("\n")[0].rstrip(".") or type(problem).__name__
        raise GcabError(
            f"there is no folder '{name}', and no encoder of that name can be fetched ({reason}): "
            "check the name and the connection, or give a folder."
        ) from None
    return place, f"{name} at {place.name[:12]}"


def build_encoder(config: EncoderConfig, weights: Mapping[str, Tensor] | None) -> PretrainedEncoder:
    """The encoder that was read, or an empty one for a stored model to fill."""
    assert isinstance(weights, PretrainedWeights), "which carries the description"
    kind = OnnxEncoder if weights.description.kind == ONNX else VisionTransformer
    encoder = kind(config, weights.description)
    if weights and not any(value.is_meta for value in encoder.state_dict().values()):  # nothing to load
        encoder.load_state_dict(weights)
    return encoder
