"""Images as people hold them in Python, turned into the bytes everything else works on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gcab.data.decode import from_pil, read_image, resized
from gcab.errors import GcabError

Images = Any  # a batch as numpy array or tensor, a sequence of PIL images, arrays or paths, or (to learn) a folder


def as_images(images: Images, size: int) -> Tensor:
    """(n, 3, size, size) uint8 from an array of a batch or a sequence of PIL images, arrays or files."""
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
    if isinstance(images, np.ndarray) and images.dtype != object:
        return resized(torch.from_numpy(np.ascontiguousarray(_square(_batch(images)))), size)
    if isinstance(images, str | Path | Image.Image) or not isinstance(images, Sequence | np.ndarray):
        raise GcabError(
            f"images must be an array or a list, not {type(images).__name__}: put a single image in a list."
        )
    if len(images) == 0:
        raise GcabError("no images were given: give at least one.")
    return torch.stack([_one(image, index, size) for index, image in enumerate(images)])


def _one(image: Any, index: int, size: int) -> Tensor:
    if isinstance(image, Image.Image):
        return from_pil(image, size)
    if isinstance(image, str | Path):
        return read_image(Path(image), size)
    if isinstance(image, Tensor | np.ndarray):
        return as_images(np.asarray(image)[None], size)[0]
    raise GcabError(f"image {index} is a {type(image).__name__}: give arrays, PIL images or paths.")


def _batch(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(n, H, W), (n, H, W, 1 or 3) or (n, 1 or 3, H, W) as (n, 3, H, W) bytes; floats are taken as 0..1."""
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[-1] in (1, 3) and array.shape[1] not in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] not in (1, 3) or 0 in array.shape:
        raise GcabError(f"an array of images must be (n, H, W), (n, H, W, 3) or (n, 3, H, W), not {array.shape}.")
    if np.issubdtype(array.dtype, np.floating):
        if not np.isfinite(array).all() or array.min() < 0 or array.max() > 1:
            raise GcabError("images of floating-point numbers must lie between 0 and 1: divide by their largest value.")
        array = np.round(array * 255)
    elif array.dtype == bool:
        array = array * 255
    elif array.min() < 0 or array.max() > 255:
        raise GcabError("images of whole numbers must lie between 0 and 255.")
    return np.broadcast_to(array, (len(array), 3, *array.shape[2:])).astype(np.uint8)


def _square(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The central square of every image."""
    height, width = batch.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return batch[:, :, top : top + side, left : left + side]


def natural_size(images: Images) -> int:
    """A square size that suits the images: their short side, to the next multiple of 8, from 8 to 64 pixels."""
    first = images[0] if len(images) else None
    if isinstance(first, str | Path):
        with Image.open(first) as opened:
            side = min(opened.size)
    elif isinstance(first, Image.Image):
        side = min(first.size)
    else:
        array = np.asarray(first)
        side = min(part for part in array.shape if part not in (1, 3)) if array.ndim >= 2 else 8
    return int(min(64, max(8, 8 * round(side / 8))))
