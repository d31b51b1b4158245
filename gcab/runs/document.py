"""config.json of a run: what was asked for, which no later command may change."""

import json
from pathlib import Path
from typing import Any

from gcab.errors import GcabError
from gcab.runs.files import parsed

FORMAT = 1
SAME_BRIGHTNESS = 1.0  # of 255 levels: decoders round differently


def read_document(path: Path) -> dict[str, Any]:
    """Read config.json and make sure it is one of ours."""
    file = path / "config.json"
    advice = f"restore it, or delete {path} and run the same command again"
    try:
        document: dict[str, Any] = parsed(file.read_bytes())
    except (OSError, ValueError) as error:
        raise GcabError(f"{file} is damaged ({error}): {advice}") from None
    try:
        written = document["format"]
        _ = document["config"]["method"], document["config"]["seed"], document["config"]["scenario"]["name"]
        _ = document["tasks"], document["versions"]["gcab"]
    except (KeyError, TypeError):
        raise GcabError(f"{file} is damaged (an entry is missing): {advice}") from None
    if not isinstance(document["config"]["seed"], int):
        raise GcabError(f"{file} is damaged (config.seed is not a whole number): {advice}")
    if written != FORMAT:
        raise GcabError(
            f"{file} has format {written}, this gcab reads format {FORMAT}: "
            "use the gcab that wrote it, or another run folder"
        )
    return document


def require_same(path: Path, existing: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to continue a run with other settings or classes, or with a gcab that may compute something else."""

    def comparable(document: dict[str, Any]) -> dict[str, Any]:
        major_minor = document["versions"]["gcab"].split(".")[:2]
        return {"gcab version": ".".join(major_minor), "config": document["config"], "tasks": document["tasks"]}

    if difference := _difference(comparable(existing), comparable(wanted)):
        key, before, now = difference
        raise GcabError(
            f"{path} was started with {key} = {before}, but this command has {now}: "
            "choose another --run folder, or delete this one to start again"
        )
    if "images" in existing and "images" in wanted and not _alike(existing["images"], wanted["images"]):
        raise GcabError(
            f"{path} was started with other images of the same classes (their number, or what they show): "
            "choose another --run folder, or delete this one to start again"
        )


def _alike(before: Any, now: Any) -> bool:
    """Whether two descriptions of images differ by no more than another decoder makes of the same files."""
    try:
        return all(
            before[split]["of_each"] == now[split]["of_each"]
            and all(
                abs(one - other) <= SAME_BRIGHTNESS
                for one, other in zip(before[split]["brightness"], now[split]["brightness"], strict=True)
            )
            for split in now
        )
    except (KeyError, TypeError, ValueError):
        return False


def _difference(before: Any, now: Any, key: str = "") -> tuple[str, str, str] | None:
    """Find the first place where two JSON values differ: its dotted key, and both values."""
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = ({str(index): item for index, item in enumerate(value)} for value in (before, now))
    if not (isinstance(before, dict) and isinstance(now, dict)):
        same = before == now and isinstance(before, bool) == isinstance(now, bool)
        return None if same else (key, _short(before), _short(now))
    for name in dict.fromkeys([*before, *now]):
        place = f"{key}.{name}" if key else name
        if name not in before or name not in now:
            return place, _short(before.get(name)), _short(now.get(name))
        if difference := _difference(before[name], now[name], place):
            return difference
    return None


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
