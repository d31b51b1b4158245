"""The photos of a lesson: read from files into memory, at the size that the model looks at."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median_low

import torch
from torch import Tensor

from gcab.data.arrays import SAMPLE, short_side
from gcab.data.decode import read_image
from gcab.errors import GcabError
from gcab.sizes import Size

NAMED = 5  # unreadable photos that a sentence names


@dataclass(frozen=True)
class Photos:
    """The photos of a lesson in memory."""

    pixels: Tensor  # (n, 3, height, width) bytes
    labels: list[str]
    unreadable: tuple[str, ...]  # a sentence for each that is left out
    files: tuple[Path, ...] = ()  # where the pixels are from

    @cached_property
    def digest(self) -> str:
        """A hash of these pixels and their classes."""
        found = hashlib.sha256(json.dumps(self.labels).encode())
        found.update(self.pixels.numpy().data)
        return found.hexdigest()

    @cached_property
    def disputed(self) -> str | None:
        """A sentence about photos that lie in two classes at once, which no model can name rightly."""
        seen, pairs = dict[bytes, int](), list[tuple[int, int]]()
        for place, pixels in enumerate(self.pixels):
            first = seen.setdefault(hashlib.sha256(pixels.numpy().data).digest(), place)
            if self.labels[first] != self.labels[place]:
                pairs.append((first, place))
        if not pairs:
            return None
        one, other = (self.files[place] for place in pairs[0])
        many = f"{len(pairs)} photos are" if len(pairs) > 1 else "a photo is"
        return f"{many} in two classes at once ({one} and {other}): keep it in one"

    @classmethod
    def read(
        cls,
        files: Sequence[Path],
        names: Sequence[str],
        size: Size,
        skip_unreadable: bool,
        watch: Callable[[int], None] = lambda _: None,
    ) -> "Photos":
        """Decode all files; those that cannot be read raise an error, unless they are to be skipped.

        `watch` is called with the number of files done.
        """
        found, read = list[tuple[Tensor | str, str]](), partial(pixels_of, size=size)
        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            for image, name in zip(pool.map(read, files), names, strict=True):
                found.append((image, name))
                watch(len(found))
        unreadable = tuple(sentence for sentence, _ in found if isinstance(sentence, str))
        if unreadable and not skip_unreadable:
            raise GcabError(refusal(unreadable, len(files)))
        labels = [name for image, name in found if isinstance(image, Tensor)]
        lost = sorted(set(names) - set(labels))
        if lost:
            raise GcabError(f"no photo of the class '{lost[0]}' can be read: add some or remove its folder.")
        pixels = torch.stack([image for image, _ in found if isinstance(image, Tensor)])
        kept = tuple(file for file, (image, _) in zip(files, found, strict=True) if isinstance(image, Tensor))
        return cls(pixels, labels, unreadable, kept)


def pixels_of(file: Path, size: Size) -> Tensor | str:
    """A photo's pixels; of one that cannot be read the sentence that says why, for a list of such."""
    try:
        return read_image(file, size)
    except GcabError as problem:
        return str(problem).rstrip(".")


def usual_side(files: Sequence[Path]) -> int:
    """The short side of most photos in pixels, judged by a few of them from all classes."""
    sides = []
    for file in (*files[:: max(1, len(files) // SAMPLE)], *files):
        with suppress(GcabError):
            sides.append(short_side(file))
        if len(sides) == min(SAMPLE, len(files)):
            break
    if not sides:
        raise GcabError(f"not one of {len(files)} photos can be read: check that they are images.")
    return median_low(sides)


def refusal(unreadable: Sequence[str], total: int) -> str:
    """One sentence about photos that stop a lesson."""
    return (
        f"{len(unreadable)} of {total} photos cannot be read, so nothing was learned ({some(unreadable)}): "
        "repair or remove them, or leave them out with --skip-unreadable."
    )


def left_out(unreadable: Sequence[str]) -> str:
    """A note on unreadable photos that a lesson or a test leaves out."""
    photos = f"{len(unreadable)} photo{'s' * (len(unreadable) != 1)}"
    return f"left out, as they cannot be read: {photos} ({some(unreadable)})"


def some(sentences: Sequence[str]) -> str:
    """A few of them, and how many more there are."""
    more = f"; and {len(sentences) - NAMED} more" if len(sentences) > NAMED else ""
    return f"{'; '.join(sentences[:NAMED])}{more}"
