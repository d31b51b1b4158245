"""Attention maps of whatever method is served, as a page can draw them."""

import torch
from torch import Tensor

from gcab.methods.method import Method
from gcab.model.attention_map import gated_attention_maps, plain_attention_map
from gcab.model.network import GatedNetwork, PlainNetwork


def attention_maps(method: Method, images: Tensor) -> Tensor | None:
    """(B, passes, N) in 0..1, each map scaled by its own maximum; None for a network that has no class token.

    GCAB has a pass for each task; methods without passes per task have one.
    """
    network = getattr(method, "network", None)
    if isinstance(network, GatedNetwork):
        maps = gated_attention_maps(network, images, compensate=getattr(method.options, "compensation", True))
    elif isinstance(network, PlainNetwork) and not network.pools:
        maps = plain_attention_map(network, images)
    else:
        return None
    return scaled(maps.float())


def scaled(maps: Tensor) -> Tensor:
    """Each map divided by its largest value, so that the darkest and the brightest task are seen alike."""
    return maps / maps.amax(dim=-1, keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
