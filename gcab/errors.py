"""Errors that a user can act on: the command line prints their one sentence and exits with code 2."""

import math
from collections.abc import Iterable
from difflib import get_close_matches

MANY = 20  # names to list


class GcabError(Exception):
    """One clear sentence: what is wrong, where, and what to do."""


class OccupiedError(GcabError):
    """Another process holds the lock of a folder, perhaps not for long."""


def unknown(kind: str, name: str, known: Iterable[str]) -> GcabError:
    """Name what was not found and the nearest name that exists, or all names where they are few."""
    names = sorted(known)
    nearest = get_close_matches(name, names, n=1, cutoff=0.5)
    some = names if len(names) <= MANY else [*get_close_matches(name, names, n=3, cutoff=0), f"{len(names) - 3} others"]
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(some)}."
    return GcabError(f"unknown {kind} '{name}': {hint}")


def check_options(
    options: object, positive: Iterable[str] = (), weights: Iterable[str] = (), section: str = "options"
) -> None:
    """Raise an error for settings of a section that are not above 0 (`positive`) or are below 0 (`weights`)."""
    for name in positive:
        if not 0 < getattr(options, name) < math.inf:
            raise GcabError(f"{section}.{name} is {getattr(options, name)}: give a number greater than 0.")
    for name in weights:
        if not 0 <= getattr(options, name) < math.inf:
            raise GcabError(f"{section}.{name} is {getattr(options, name)}: give 0 or more.")
