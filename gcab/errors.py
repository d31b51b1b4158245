"""Problems a person can act on: the command line prints their one sentence and exits with code 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class GcabError(Exception):
    """One clear sentence: what is wrong, where, and what to do."""


def unknown(kind: str, name: str, known: Iterable[str]) -> GcabError:
    """Name what was not found and the nearest name that exists."""
    names = sorted(known)
    nearest = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(names)}."
    return GcabError(f"unknown {kind} '{name}': {hint}")
