"""Layout of a table's columns in a terminal: words and numbers stay whole, columns without room go below."""

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

FRAME = 3  # border and padding of a column; one more border closes the line

Lines = Sequence[Sequence[str]]  # the head, then the rows
Band = dict[int, int]  # columns that stand side by side, each with its width


def bands(lines: Lines, width: int) -> list[Band]:
    """All columns in one band where words have room; else in several, one below the other, that all name the rows."""
    columns = list(zip(*lines, strict=True))
    longest = [max(map(cell_len, column)) for column in columns]
    half = max(1, width // 2 - 4)  # two columns fit in any case
    least = [min(half, max(map(unbroken, column))) for column in columns]
    found = [dict(enumerate(least))]
    if taken(least) > width:
        least[0] = min(half, max(least[0], min(longest[0], width // 3)))  # names are read first
        found = stacked(least, naming(lines[1:]), width)
    spare = width - max(taken(band.values()) for band in found)
    for band in found:
        band[0] += max(0, min(spare, longest[0] - band[0]))  # the same in all bands
        widen(band, longest, width)
    return found


def stacked(least: Sequence[int], names: int, width: int) -> list[Band]:
    """As many columns in each band as fit behind those that name the rows."""
    if taken([*least[:names], max(least[names:])]) > width:
        names = 1
    found = [dict(enumerate(least[:names]))]
    for column in range(names, len(least)):
        if len(found[-1]) > names and taken([*found[-1].values(), least[column]]) > width:
            found.append(dict(enumerate(least[:names])))
        found[-1][column] = least[column]
    return found


def widen(band: Band, longest: Sequence[int], width: int) -> None:
    """Give the remaining width to the narrowest of the columns that need more."""
    for _ in range(width - taken(band.values())):
        if wanting := [column for column in band if column and band[column] < longest[column]]:
            band[min(wanting, key=band.__getitem__)] += 1


def naming(rows: Lines) -> int:
    """The number of leading columns that identify a row."""
    counts = range(1, len(rows[0]) if rows else 1)
    return next((count for count in counts if len({tuple(row[:count]) for row in rows}) == len(rows)), 1)


def unbroken(text: str) -> int:
    """The width below which a text breaks within a word, or a number from its deviation; two numbers may part."""
    parts = re.split(r"(?<=/) ", text) if re.match(r"-?\d", text) else text.split()
    return max(map(cell_len, parts), default=1)


def taken(widths: Iterable[int]) -> int:
    """The width of a table with columns of these widths."""
    return sum(width + FRAME for width in widths) + 1
