"""Tells folders of classes from folders inside a class, as a lesson of `week1` and `week2` serves nobody."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gcab.data.archive import listed
from gcab.errors import GcabError


def require_classes(root: Path, classes: Mapping[str, Sequence[Path]]) -> None:
    """Refuse folders whose photos all lie in folders of their own, unless those are usual inside a class.

    Usual are: one for each class (`images`), a numbered series (`burst-1`, `burst-2`), and the same in every class
    (`front`, `back`), but not where the classes themselves would be a named series (`week1`, `week2`).
    """
    if any(path.parent == root / name for name, files in classes.items() for path in files):
        return
    inside = {name: {path.relative_to(root / name).parts[0] for path in files} for name, files in classes.items()}
    several = {name: parts for name, parts in inside.items() if not is_series(parts)}
    if not several:
        return
    named_series = len(classes) > 1 and is_series(classes) and any(map(str.isalpha, "".join(classes)))
    often = Counter(part for parts in inside.values() for part in parts)
    if min(often.values()) > 1 and not named_series:
        return
    name, parts = next(iter(several.items()))
    which = f"class{'es' * (len(classes) > 1)} {listed(classes)}"
    raise GcabError(
        f"'{root}' would give the {which}, but all photos lie in further folders (in {name}: {listed(parts)}): if "
        f"those are the classes, give '{root / name}' instead of '{root}', and if not, move the photos out of them."
    )


def is_series(names: Collection[str]) -> bool:
    """Whether names differ in their numbers only."""
    return len({re.sub(r"\d+", "", name.casefold()) for name in names}) == 1
