"""The one place that builds an encoder."""

from collections.abc import Mapping
from functools import partial
from typing import cast

from torch import Tensor
from torch.nn import functional

from gcab.errors import GcabError
from gcab.fast.fused_attention import FusedAttention
from gcab.model.encoder import Encoder, EncoderConfig, resized_position
from gcab.model.resnet import ResNet
from gcab.pretrained.source import build_encoder
from gcab.sizes import Size


def make_encoder(
    config: EncoderConfig, image_size: Size, weights: Mapping[str, Tensor] | None = None
) -> Encoder | ResNet:
    """The encoder that a configuration asks for, with random initial values or with the weights of another.

    The other may have learned from images of another size: position embedding and patches are resampled.
    """
    if config.kind == "pretrained":
        return cast(Encoder, build_encoder(config, weights))  # it has the attributes that networks use
    kind = ResNet if config.kind == "resnet18" else partial(Encoder, gpsa=FusedAttention)
    encoder = kind(config, image_size)
    if weights is not None:
        try:
            encoder.load_state_dict(fitted(weights, encoder) if isinstance(encoder, Encoder) else weights, strict=True)
        except RuntimeError:
            raise GcabError(
                f"the encoder in {config.weights} has another shape than this one: give it the same encoder.* settings."
            ) from None
    return encoder


def make_transformer(config: EncoderConfig, image_size: Size, weights: Mapping[str, Tensor] | None = None) -> Encoder:
    """`make_encoder` for methods that need a transformer."""
    require_transformer(config)
    return cast(Encoder, make_encoder(config, image_size, weights))


def require_transformer(config: EncoderConfig) -> None:
    """Raise an error for an encoder without attention."""
    if config.kind == "resnet18":
        raise GcabError("this method needs a transformer: give encoder.kind convit or vit, not resnet18.")


def fitted(weights: Mapping[str, Tensor], encoder: Encoder) -> dict[str, Tensor]:
    """Weights resampled for an encoder with another grid or other patches, where nothing else differs.

    The position embedding is (1, rows, columns, D), as its number of tokens would not tell its grid. GPSA's offsets are
    counted in patches and belong to the encoder itself: its heads look at the same neighbours.
    """
    changed, own = dict(weights), encoder.state_dict()
    position, patches = weights.get("position"), weights.get("patches.weight")
    if position is not None and position.ndim == 4:
        changed["position"] = resized_position(position, encoder.grid)
    if patches is not None and patches.ndim == 4 and patches.shape[2:] != own["patches.weight"].shape[2:]:
        changed["patches.weight"] = resized_patches(patches, encoder.config.patch)
    return changed


def resized_patches(patches: Tensor, side: int) -> Tensor:
    """Patch kernels (D, 3, P, P) resampled to another size, bicubic, and scaled to keep their sums."""
    larger = functional.interpolate(
        patches.float(), (side, side), mode="bicubic", align_corners=False, antialias=side < patches.shape[-1]
    )
    return larger * (patches.shape[-1] / side) ** 2
