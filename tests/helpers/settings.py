"""The tiny configuration: a network of a few thousand weights, for which a lesson takes a fraction of a second."""

from collections.abc import Mapping
from typing import Any

from gcab.methods.registry import methods

TINY: dict[str, Any] = {"encoder.width": 16, "encoder.heads": 4, "encoder.blocks": 1, "encoder.mlp_ratio": 2.0}
FEW_TOKENS = {"encoder.patch": 4}  # of runs on images of 8 x 8 pixels; models of photos derive it from their size
# Of the second opinion, for methods that have one: thousands take seconds to make, and tones would outweigh so few.
FEW_FEATURES = {"options.eye": 64, "options.eye_tones": 0}
TINY_GCAB = {**TINY, **FEW_FEATURES}


def tiny(method: str, profile: str = "extended") -> dict[str, Any]:
    """The tiny configuration of any method."""
    kind = methods().get(method)
    return TINY_GCAB if kind and "options.eye" in kind.profiles.get(profile, {}) else TINY


def train_flags(method: str, settings: Mapping[str, Any], profile: str = "extended") -> list[str]:
    """The tiny configuration, with changes, for `gcab train`."""
    return ["--method", method, "--profile", profile, *flags({**tiny(method, profile), **FEW_TOKENS, **settings})]


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as `gcab train` takes them."""
    return [f"--{key}={value}" for key, value in settings.items()]


def set_flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the commands for photos take them."""
    return [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
