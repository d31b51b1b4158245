"""What the rest of gcab knows about a data set; each file beside this one describes its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gcab.data.images import ImageSet, Split
from gcab.sizes import Size

Colour = tuple[float, float, float]
IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_STD: Colour = (0.229, 0.224, 0.225)
SHARP_EYE = {"options.eye_side": 64, "options.side": 64}  # for images of 64 pixels or more


@dataclass(frozen=True)
class Dataset:
    """All that the rest of gcab knows about a data set; what is left out is as for photos in a folder."""

    name: str
    summary: str
    classes: int | None  # None: known only once it is read
    size: int  # side of the images unless the user asks for another
    load: Callable[[Path | None, Split, Size], ImageSet]
    mean: Colour = IMAGENET_MEAN  # of channel values in 0..1
    std: Colour = IMAGENET_STD
    crop: Literal["pad", "resized", "none"] = "resized"
    flip: bool = True
    needs_root: bool = True
    tasks: tuple[int, ...] = ()  # numbers of tasks that are usual
    order: tuple[int, ...] | None = None  # the authors' class order, where it is known
    preset: Mapping[str, Any] = field(default_factory=dict)  # by dotted key; options hold for methods that have them
    needs: str = ""  # what `--data DIR` has to hold
    address: str = ""  # where to get it
