"""The history of a model: its lessons, and every change between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Kind = Literal["distilled", "forgot", "joined", "merged", "renamed"]


@dataclass(frozen=True)
class Change:
    """One change of a model that was no lesson; of a forgotten class not even the name is kept."""

    kind: Kind
    text: str  # what was done, in a few words
    when: str  # ISO 8601
    lessons: int  # learned by then
    classes: int  # known afterwards
    distillation: str | None = None  # identifies photos, settings and the model before it, as `Taught.lesson`


def change(kind: Kind, text: str, lessons: int, classes: int, distillation: str | None = None) -> Change:
    """A change with the current time."""
    return Change(kind, text, datetime.now(UTC).isoformat(timespec="seconds"), lessons, classes, distillation)


def history(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every lesson and every other change of a model, oldest first, from its `model.json` (checked before).

    Classes are named as they are now; those that were forgotten since are left out.
    """
    taught = description.get("taught", [{"classes": len(names)} for names in description["tasks"]])
    changes, found, known = description.get("changes", []), list[dict[str, Any]](), 0
    for number, (names, entry) in enumerate(zip(description["tasks"], taught, strict=True), start=1):
        known += len(names)
        found.append(
            {
                "what": "learned",
                "when": entry.get("when"),
                "lesson": number,
                "names": names,
                "again": list(entry.get("again", ())),
                "classes": known,
                "photos": entry.get("images"),
                "held_out": entry.get("held_out"),
                "accuracy": entry.get("accuracy"),
                "now": entry.get("now"),
                "seconds": entry.get("seconds"),
            }
        )
        found += [
            {"what": made["kind"], "when": made["when"], "text": made["text"], "classes": made["classes"]}
            for made in changes
            if made["lessons"] == number
        ]
    return found
