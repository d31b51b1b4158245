"""Images as users have them in Python, converted to the uint8 tensors that everything else works on."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gcab.data.decode import from_pil, image_dimensions, read_image, resized
from gcab.errors import GcabError
from gcab.sizes import Size

SIZES = (8, 16, 32, 64)  # pixels; the eye sees at 16 or 32, to which these shrink evenly; larger ones gained nothing
SAMPLE = 25  # images that decide on a size

Images = Any  # a batch as numpy array or tensor, a sequence of PIL images, arrays or paths, or (to learn) a folder


def as_batch(images: Images) -> np.ndarray[Any, Any] | Sequence[Any]:
    """An array, or a sequence of single images; in both cases at least one."""
    if isinstance(images, Image.Image):  # unlike an array, it cannot be mistaken for several
        return [images]
    if isinstance(images, Tensor):
        images = _host_array(images)
    if isinstance(images, str) or not isinstance(images, Sequence | np.ndarray) or getattr(images, "ndim", 1) == 0:
        raise GcabError(
            f"images must be an array or a list, not {type(images).__name__}: put a single image in a list."
        )
    if len(images) == 0:
        raise GcabError("no images were given: give at least one.")
    return images


def as_images(images: Images, size: Size) -> Tensor:
    """(n, 3, height, width) uint8 from an array of a batch or a sequence of PIL images, arrays or files."""
    batch = as_batch(images)
    if isinstance(batch, np.ndarray) and batch.dtype.kind not in "OU":
        return resized(torch.from_numpy(np.ascontiguousarray(_channels_first(batch))), size)
    return torch.stack([_one(image, index, size) for index, image in enumerate(batch)])


def natural_size(images: Images) -> int:
    """A square size that suits the images, judged by a few of them."""
    batch = as_batch(images)
    return suitable_size(median_low([short_side(image) for image in batch[:: max(1, len(batch) // SAMPLE)]]))


def short_side(image: Any) -> int:
    """Short side in pixels of an array, a PIL image or a file, of which no pixel is decoded."""
    if isinstance(image, str | Path):
        shape: Sequence[int] = image_dimensions(Path(image))
    else:
        shape = image.size if isinstance(image, Image.Image) else np.shape(image)
    return min((part for part in shape if part not in (1, 3)), default=min(SIZES))


def suitable_size(side: int) -> int:
    """The entry of `SIZES` that is nearest to a short side on a log scale."""
    return min(SIZES, key=lambda size: abs(math.log(size / max(1, side))))


def _one(image: Any, index: int, size: Size) -> Tensor:
    if isinstance(image, Image.Image):
        return from_pil(image, size)
    if isinstance(image, str | Path):
        return read_image(Path(image), size)
    if isinstance(image, Tensor):
        image = _host_array(image)
    if isinstance(image, np.ndarray) and image.dtype.kind not in "OU":
        return as_images(image[None], size)[0]
    raise GcabError(f"image {index} is a {type(image).__name__}: give arrays, PIL images or paths.")


def _host_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _channels_first(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(n, H, W), (n, H, W, 1 or 3) or (n, 1 or 3, H, W) as (n, 3, H, W) bytes; floats are taken as 0..1."""
    given = array.shape
    if array.ndim == 3 and array.shape[-1] not in (1, 3):  # else it is one image (H, W, 3), not a batch
        array = array[:, None]
    elif array.ndim == 4 and array.shape[-1] in (1, 3) and array.shape[1] not in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] not in (1, 3) or 0 in array.shape:
        raise GcabError(
            f"an array of images must be (n, H, W), (n, H, W, 3) or (n, 3, H, W), not {given}: "
            "put a single image in a list."
        )
    return np.broadcast_to(_levels(array), (len(array), 3, *array.shape[2:])).astype(np.uint8)


def _levels(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Integer grey levels from 0 to 255."""
    if array.dtype.kind == "f":
        if not (array.min() >= 0 and array.max() <= 1):  # also false for NaN
            raise GcabError("images of floating-point numbers must lie between 0 and 1: divide by their largest value.")
        return np.round(array * 255)
    if array.dtype.kind == "b":
        return array * np.uint8(255)
    if array.dtype.kind not in "iu":
        raise GcabError(f"images of {array.dtype} cannot be read: give bytes, whole numbers or numbers from 0 to 1.")
    if array.min() < 0 or array.max() > 255:
        raise GcabError("images of whole numbers must lie between 0 and 255.")
    return array
