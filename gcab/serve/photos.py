"""Photos from untrusted clients: limits are checked by their structure, pixels are decoded in worker processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from gcab.classifier.photos import NAMED
from gcab.data.containers.contents import TooLargeError
from gcab.data.pictures import examine
from gcab.errors import GcabError
from gcab.serve.decoding import Decoders, Spend, ignore, photo_bounds
from gcab.serve.limits import Limits, RequestError
from gcab.serve.wording import without_paths
from gcab.sizes import Size, sides

SMALLEST = 1  # pixels a side: a JPEG is judged by what it can be scaled to


def decode_photo(decoders: Decoders, file: IO[bytes], name: str, size: Size, spend: Spend = ignore) -> Tensor:
    """(3, height, width) bytes, or `RequestError`."""
    picture = bytearray(decoders.decode(file, name, size, spend))
    return torch.frombuffer(picture, dtype=torch.uint8).view(*sides(size), 3).permute(2, 0, 1)


def check_photo(file: IO[bytes], name: str, limits: Limits) -> None:
    """Refuse what would take long or much memory, from the file's structure alone."""
    bounds = photo_bounds(limits)
    try:
        examine(file.read(bounds.file_bytes + 1), name, bounds, SMALLEST)
    except TooLargeError as problem:
        raise RequestError(413, without_paths(str(problem))) from None
    except GcabError as problem:
        raise RequestError(422, without_paths(str(problem))) from None


def check_readable(photos: Mapping[Path, str], size: Size, decoders: Decoders) -> None:
    """Decode every file once, while the names that their owner gave them are known."""
    unreadable = []
    for path, name in photos.items():
        try:
            with path.open("rb") as file:
                decoders.decode(file, name, size)
        except RequestError as problem:
            unreadable.append(problem.sentence.rstrip("."))
    if unreadable:
        more = f"; and {len(unreadable) - NAMED} more" if len(unreadable) > NAMED else ""
        raise RequestError(
            422,
            f"{len(unreadable)} of {len(photos)} photos cannot be read, so nothing was learned "
            f"({'; '.join(unreadable[:NAMED])}{more}): take them out of the zip and send it again.",
        )
