"""The one place that builds an encoder."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from gcab.errors import GcabError
from gcab.fast.fused_attention import FusedAttention
from gcab.model.encoder import Encoder, EncoderConfig
from gcab.model.resnet import ResNet


def make_encoder(
    config: EncoderConfig, image_size: int, weights: Mapping[str, Tensor] | None = None
) -> Encoder | ResNet:
    """The encoder that a configuration asks for, with random initial values or with the weights of another."""
    kind = ResNet if config.kind == "resnet18" else partial(Encoder, gpsa=FusedAttention)
    encoder = kind(config, image_size)
    if weights is not None:
        try:
            encoder.load_state_dict(weights, strict=True)
        except RuntimeError:
            raise GcabError(
                f"the encoder in {config.weights} has another shape than this one: give it the same encoder.* settings "
                "and the same size of images."
            ) from None
    return encoder


def make_transformer(config: EncoderConfig, image_size: int, weights: Mapping[str, Tensor] | None = None) -> Encoder:
    """The same for methods that decode patch by patch."""
    require_transformer(config)
    encoder = make_encoder(config, image_size, weights)
    assert isinstance(encoder, Encoder)
    return encoder


def require_transformer(config: EncoderConfig) -> None:
    """Refuse an encoder without attention."""
    if config.kind == "resnet18":
        raise GcabError("this method needs a transformer: give encoder.kind convit or vit, not resnet18.")
