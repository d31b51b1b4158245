"""The one place that builds an encoder."""

from collections.abc import Mapping

from torch import Tensor

from gcab.errors import GcabError
from gcab.fast.fused_attention import FusedAttention
from gcab.model.encoder import Encoder, EncoderConfig


def make_encoder(config: EncoderConfig, image_size: int, weights: Mapping[str, Tensor] | None = None) -> Encoder:
    """The encoder that a configuration asks for, with random initial values or with the weights of another."""
    encoder = Encoder(config, image_size, FusedAttention)
    if weights is not None:
        try:
            encoder.load_state_dict(weights, strict=True)
        except RuntimeError:
            raise GcabError(
                f"the encoder in {config.weights} has another shape than this one: give it the same encoder.* settings "
                "and the same size of images."
            ) from None
    return encoder
