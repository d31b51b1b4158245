"""Settings for models in use, which are given photos and no scenario: how large a network, and how it is trained."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gcab.config import RunConfig, leaves, override, resolve
from gcab.errors import GcabError, unknown
from gcab.methods.registry import method_named
from gcab.model.eye import SHARP_SIDE, SIDE
from gcab.pretrained.source import describe, names_encoder
from gcab.sizes import Size, pixels, sides, simplest, size_name

Settings = Mapping[str, Any]
ENCODERS: Mapping[str, Settings] = {
    "tiny": {"encoder.width": 64, "encoder.heads": 4, "encoder.blocks": 2},
    "small": {"encoder.width": 192, "encoder.heads": 12, "encoder.blocks": 4},
    "paper": {"encoder.width": 384, "encoder.heads": 12, "encoder.blocks": 5},
}
# `photos` is for images that mean the same when mirrored or cut; a mirrored letter is another letter.
RECIPES: Mapping[str, Settings] = {
    "plain": {
        "training.epochs": 40,
        "training.first_task": 1.0,
        "training.batch_size": 16,
        "training.lr": 1e-3,
        "augment.crop": "none",
        "augment.flip": False,
        "augment.randaugment": False,
        "augment.cutmix": 0.0,
    },
    "photos": {  # as `gcab train` has them
        "training.epochs": 500,
        "training.first_task": 1.0,
        "training.batch_size": 128,
        "training.lr": 1.25e-4,
        "augment.crop": "resized",
        "augment.flip": True,
        "augment.randaugment": True,
        "augment.cutmix": 0.0,
    },
}
SMALLEST, LARGEST = 8, 384  # pixels a side of the images of a model
PATCHES, MOST_PATCHES = 64, 256  # that an image is cut into: about, and at most
TONES = 16  # of each channel that the eye tells apart: of some things nothing but colour or brightness tells
USUAL_SIZE = 64  # to check settings with before images have been seen
LARGEST_PADDED = 32  # pixels: below this, `photos` shifts images by a few pixels, as is usual for CIFAR
IMITATION = ("options.distillation_", "options.temperature", "options.views")  # how GCAB-Fast learns from its passes
FREE = ("training.", "augment.", "seed", *IMITATION)  # what may differ from task to task


def first_config(
    method: str, encoder: str, recipe: str, epochs: int | None, seed: int, settings: Settings, size: Size
) -> RunConfig:
    """The configuration of a model that has learned nothing yet."""
    refuse_derived(settings)
    size = simplest(*sides(size))
    allowed = range(SMALLEST, LARGEST + 1, 8)
    if any(side not in allowed for side in sides(size)) and size != own_size(encoder):
        raise GcabError(
            f"image_size is {size_name(size)}: give a multiple of 8 from {SMALLEST} to {LARGEST}, or two as 48x96."
        )
    place = {"scenario.image_size": size, "encoder.patch": patch_for(size)}
    side = SHARP_SIDE if math.prod(sides(size)) >= SHARP_SIDE**2 else SIDE
    wished = {"trial": True, "side": side, "eye_side": side, "tones": TONES, "eye_tones": TONES}
    known = {field.name for field in fields(method_named(method).Options)}
    own = {f"options.{name}": value for name, value in wished.items() if name in known}
    given = {**training(recipe, epochs, size), **encoder_settings(encoder, method), **own}
    changes = {**given, **settings, **place}
    return resolve("folder/1", method, seed=seed, changes=changes)


def patch_for(size: Size) -> int:
    """Pixels a side of the patches that come nearest to 8 x 8 of them; those of the smallest images have 2."""
    height, width = sides(size)
    common = math.gcd(height, width)
    whole = [side for side in range(2, common + 1) if common % side == 0]
    best = min(whole, key=lambda side: abs(math.log(height * width / side**2 / PATCHES)))
    if height * width > MOST_PATCHES * best**2:
        unit = 8 * round(max(height, width) / 64)
        other = "x".join(str(max(1, round(side / unit)) * unit) for side in (height, width))
        raise GcabError(
            f"images of {pixels(size)} would be cut into {height * width // best**2} patches of {best} x {best}, their "
            f"largest common divisor: give sides with a larger one, such as {other}."
        )
    return best


def settings_for(config: RunConfig) -> dict[str, Any]:
    """The settings with which `first_config` gives this configuration again, beside method, size and seed."""
    usual = first_config(config.method, "tiny", "plain", None, config.seed, {}, USUAL_SIZE)
    before = {key: value for key, _, value in leaves(usual)}
    groups = ("encoder.", "training.", "augment.", "options.")
    return {
        key: value
        for key, _, value in leaves(config)
        if key.startswith(groups) and key != "encoder.patch" and before[key] != value
    }


def next_config(
    config: RunConfig,
    encoder: str | None = None,
    recipe: str | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    settings: Settings | None = None,
    size: Size | None = None,
) -> RunConfig:
    """The configuration of a model's next task: what is not given stays, what the first task fixed cannot change."""
    now = config.scenario.image_size
    refuse_derived(settings or {})
    if size is not None and sides(size) != sides(now):
        raise GcabError(f"the images of this model have {pixels(now)} since its first task: leave the size out.")
    shape = encoder_settings(encoder, config.method) if encoder else {}
    changes = {**shape, **training(recipe, epochs, now), **(settings or {})}
    if seed is not None:
        changes["seed"] = seed
    changed: RunConfig = override(config, changes)
    before = {key: value for key, _, value in leaves(config)}
    for key, _, value in leaves(changed):
        if value != before[key] and not key.startswith(FREE):
            raise GcabError(f"{key} is {before[key]} since this model's first task and cannot become {value}.")
    return changed


def is_pretrained(encoder: str) -> bool:
    """Whether the name of an encoder is no preset but a pretrained one."""
    return encoder not in ENCODERS and names_encoder(encoder)


def usual_method(encoder: str) -> str:
    """The default method for an encoder: a pretrained one is not trained, so it needs a classifier only."""
    return "frozen" if is_pretrained(encoder) else "gcab"


def own_size(encoder: str) -> int | None:
    """Pixels a side that a pretrained encoder's images are resized to; None for any other encoder."""
    return max(SMALLEST, min(LARGEST, describe(encoder).resize)) if is_pretrained(encoder) else None


def encoder_settings(encoder: str, method: str) -> dict[str, Any]:
    """The settings of a preset, or of a pretrained encoder, which has no drift that a method could undo."""
    if not is_pretrained(encoder):
        return chosen("encoder", encoder, ENCODERS)
    still = {"options.drift": "frozen"} if hasattr(method_named(method).Options(), "drift") else {}
    return {"encoder.kind": "pretrained", "encoder.weights": encoder, **still}


def training(recipe: str | None, epochs: int | None, size: Size) -> dict[str, Any]:
    """The settings of a recipe for images of this size, and its length where it is given."""
    changes = chosen("recipe", recipe, RECIPES) if recipe else {}
    if changes.get("augment.crop") == "resized" and max(sides(size)) <= LARGEST_PADDED:
        changes["augment.crop"] = "pad"
    if epochs is not None:
        changes["training.epochs"] = epochs
    return changes


def chosen(kind: str, name: str, table: Mapping[str, Settings]) -> dict[str, Any]:
    """A named set of settings."""
    if name not in table:
        raise unknown(kind, name, table)
    return dict(table[name])


def refuse_derived(settings: Settings) -> None:
    """Raise an error for settings that follow from the size of the images."""
    for key in ("scenario.image_size", "encoder.patch"):
        if key in settings:
            raise GcabError(f"{key} follows from image_size here: give that instead.")
