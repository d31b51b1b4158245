"""Metadata of a pretrained encoder: its origin, its licence, its architecture, and how its images are prepared."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

Channels = tuple[float, float, float]
ONNX = "onnx"  # the kind of encoders that are a graph instead of a known architecture


@dataclass(frozen=True)
class Description:
    """All that a model needs to build a pretrained encoder again, and to say what it is."""

    kind: str  # an architecture, or onnx
    origin: str  # as it was asked for, without the folders on the way
    licence: str
    digest: str  # SHA-256 of the weights as they were found
    resize: int  # pixels of the short side
    crop: int  # pixels of the centre square that the encoder sees
    preprocessing: str  # where size, mean and deviation are from, in words
    shape: Mapping[str, Any] = field(default_factory=dict)  # what the encoder of this kind is built from

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise ValueError(f"a centre of {self.crop} pixels cannot be cut out of {self.resize}")

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON."""
        return asdict(self)

    def same_encoder(self, other: "Description") -> bool:
        """Whether both give the same features, wherever they were found."""
        own, its = ((it.kind, it.digest, it.resize, it.crop, dict(it.shape)) for it in (self, other))
        return own == its


class PretrainedWeights(dict[str, Tensor]):
    """The tensors of an encoder, none where a model brings its own, with all that is known of it."""

    def __init__(self, description: Description, mean: Channels, std: Channels, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.description, self.mean, self.std = description, mean, std
