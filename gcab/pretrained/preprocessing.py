"""How images are prepared for an encoder, read from the file beside its weights (`preprocessor_config.json`)."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcab.errors import GcabError
from gcab.pretrained.description import Channels

IMAGENET: tuple[Channels, Channels] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES: tuple[Channels, Channels] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CLIP: tuple[Channels, Channels] = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
BICUBIC = 3  # Pillow's number, which these files use
FILTERS = {0: "nearest", 1: "Lanczos", 2: "bilinear", 4: "box", 5: "Hamming"}
LARGEST = 2048  # pixels
TELLING = ("size", "crop_size", "image_mean", "image_std", "do_normalize", "do_rescale")


@dataclass(frozen=True)
class Preprocessing:
    """Short side to `resize`, the centre of `crop` pixels, (pixel / 255 - mean) / std."""

    resize: int
    crop: int
    mean: Channels
    std: Channels
    words: str  # where this is from, and what gcab does differently


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; raises an error if there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise GcabError(f"{file} cannot be read ({problem.strerror}): check the path.") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise GcabError(f"{file} is damaged, as it is no JSON object: fetch it again.")
    return content


def find_preprocessing(files: tuple[Path, ...], default: Preprocessing) -> Preprocessing:
    """The preprocessing in the first of these files that has one, or the default."""
    for file in files:
        if file.is_file():
            content = read_json(file)
            inner = content.get("image_processor", content)  # processor_config.json has it inside
            if isinstance(inner, dict) and not any(key in inner for key in TELLING):
                continue
            try:
                return preprocessing_of(inner, default, file.name)
            except (AttributeError, KeyError, TypeError, ValueError) as problem:
                raise GcabError(f"{file} does not say how images are prepared ({problem}): fetch it again.") from None
    return default


def preprocessing_of(content: Mapping[str, Any], default: Preprocessing, name: str) -> Preprocessing:
    """The preprocessing in a file; missing entries are the default's."""
    crop = side(content["crop_size"]) if content.get("do_center_crop") and "crop_size" in content else None
    resize = side(content["size"]) if content.get("do_resize", True) and "size" in content else crop
    if resize is None:
        resize, crop = default.resize, default.crop
    mean, std = (
        channels(content[key]) if key in content else usual
        for key, usual in (("image_mean", default.mean), ("image_std", default.std))
    )
    if not content.get("do_normalize", True):
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    factor = float(content.get("rescale_factor", 1 / 255)) if content.get("do_rescale", True) else 1.0
    levels = 255 * factor  # pixel * factor = (pixel / 255) * levels
    mean, std = scaled(mean, 1 / levels), scaled(std, 1 / levels)
    if not all(map(math.isfinite, (*mean, *std))) or min(std) <= 0:
        raise ValueError("its mean or deviation is no number")
    words, resample = f"from {name}", content.get("resample", BICUBIC)
    if resample != BICUBIC:
        words += f", but bicubic instead of {FILTERS.get(resample, resample)}"
    if crop is None and "shortest_edge" not in (content["size"] if isinstance(content.get("size"), dict) else {}):
        words += ", the centre square instead of the whole photo squeezed"
    return Preprocessing(max(resize, crop or resize), crop or resize, mean, std, words)


def side(value: Any) -> int:
    """Pixels of a square: a number, or an object with one for each side or for the short one."""
    if isinstance(value, Mapping):
        sides = {value[key] for key in ("height", "width", "shortest_edge") if key in value}
        if len(sides) != 1:
            raise ValueError(f"its size is {dict(value)}, which is no square")
        value = sides.pop()
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise ValueError(f"its size is {value!r}")
    return value


def channels(values: Any) -> Channels:
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def scaled(values: Channels, factor: float) -> Channels:
    red, green, blue = values
    return red * factor, green * factor, blue * factor
