"""One HTML file about a model in use: what it knows about itself, and what labelled photos say where there are some."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gcab.report import model_figures
from gcab.report.page import Opening, card, content, figure_section, write_page
from gcab.report.tables import MEGABYTE, NOTHING, Table

GAP = 10.0  # points between confidence and accuracy from which a warning is due
FALLEN = 15.0  # points that a lesson may lose without one
POOR = 50.0  # per cent right, below which a lesson has ended badly

Facts = Mapping[str, Any]  # `gcab.classifier.overview.overview`, with "history", "confusion" and "parts"
Measured = Mapping[str, Any]  # `gcab.classifier.testing.measure`


def write_model_page(facts: Facts, measured: Measured | None, out: Path) -> Path:
    """Write the page about a model."""
    return write_page(out, *opened(facts, measured), sections_of(facts, measured))


def model_content(facts: Facts, measured: Measured | None = None) -> str:
    """The content of `write_model_page` as HTML, for a page that has more on it."""
    return content(*opened(facts, measured), sections_of(facts, measured))


def opened(facts: Facts, measured: Measured | None) -> tuple[Opening, str]:
    """The opening of the page, and the template of the rest."""
    warnings = [escape(text) for text in warnings_of(facts, measured)]
    name = Path(facts["model"]).name
    return Opening("gcab model", name, _lead(facts, measured), warnings, _cards(facts, measured)), "model.html"


def sections_of(facts: Facts, measured: Measured | None) -> dict[str, str]:
    return {
        "lessons_figure": _lessons_figure(facts, measured),
        "lessons_table": _lessons(facts, measured).html(),
        "confusion_figure": _confusion(facts, measured),
        "classes_table": "" if measured is None else f"<section><h2>Classes</h2>{_classes(measured).html()}</section>",
        "calibration_figure": _calibration(facts, measured),
        "least_sure": "" if measured is None else _least_sure(measured),
        "parts_table": _parts(facts, measured).html(),
        "history_table": _history(facts["history"]).html(),
    }


def estimate_now(facts: Facts) -> float | None:
    """Accuracy over all classes to expect now, from what is known of each lesson; None where nothing is."""
    known = [(task["classes"], task["now"]) for task in facts["tasks"] if task["now"] is not None and task["classes"]]
    if not known or len(known) < sum(task["classes"] > 0 for task in facts["tasks"]):
        return None
    return float(sum(count * value for count, value in known) / sum(count for count, _ in known))


def warnings_of(facts: Facts, measured: Measured | None) -> list[str]:
    """Warnings that must not be overlooked."""
    found = []
    for task in facts["tasks"]:
        accuracy, photos = task["accuracy"], task["held_out"] or 0
        if accuracy is None:
            continue
        then = accuracy if task.get("at_first") is None else task["at_first"]
        now = then if task["now"] is None else task["now"]
        if (then * photos + 100) / (photos + 2) - now > FALLEN and task is not facts["tasks"][-1]:
            # with two pseudo-photos, one right and one wrong
            found.append(f"Lesson {task['index']} had {then:.0f} % when it was learned, and about {now:.0f} % now.")
        elif now < POOR and (bad := bad_end(accuracy)):
            found.append(f"Lesson {task['index']} {bad}.")
    if measured is not None and abs(measured["confidence"] - measured["accuracy"]) > GAP:
        found.append(
            f"The model is {measured['confidence']:.0f} % sure on average and right {measured['accuracy']:.0f} % of "
            "the time: its confidence does not hold for these photos."
        )
    if not facts["calibration"]["images"]:
        found.append("The model is not calibrated: its last change had no held-out photos.")
    return found


def bad_end(accuracy: float | None) -> str | None:
    """A warning for a lesson that ended with this accuracy; None where it is good enough."""
    if accuracy is None or accuracy >= POOR:
        return None
    return (
        f"ended with {accuracy:.0f} % of its held-out photos right: more photos of its classes would help, or a "
        "new model with a stronger encoder (--encoder)"
    )


def _lead(facts: Facts, measured: Measured | None) -> str:
    lessons = _counted(len(facts["tasks"]), "lesson")
    opening = f"{_counted(facts['classes'], 'class')}, learned in {lessons} with {facts['method']}."
    if measured is not None:
        strange = sum(measured["strange"].values())
        others = f" Beside them: {_counted(strange, 'photo')} of classes it does not know." if strange else ""
        photos = _counted(measured["photos"], "labelled photo")
        told = f"It names {measured['accuracy']:.1f} % of {photos} correctly"
        return f"{opening} {told}, choosing among all classes.{others}"
    now = estimate_now(facts)
    if now is None:
        return f"{opening} What it is worth now, labelled photos would tell: gcab test."
    return (
        f"{opening} It should name about {now:.0f} % of new photos correctly, choosing among all classes: an estimate "
        "from the sums it keeps, as the photos of earlier lessons are gone."
    )


def _cards(facts: Facts, measured: Measured | None) -> list[str]:
    now, calibration = estimate_now(facts), facts["calibration"]
    if measured is not None:
        first = card(
            "Accuracy",
            f"{measured['accuracy']:.1f}",
            f"per cent of {_counted(measured['photos'], 'photo')} named right.",
        )
        error = 100 * measured["calibration_error"]
        second = card("Calibration error", f"{error:.1f}", "points between confidence and accuracy, on these photos.")
    else:
        about = NOTHING if now is None else f"~{now:.0f}"
        first = card("Accuracy now", about, "per cent of new photos that should be named right: an estimate.")
        error = calibration["expected_calibration_error"]
        told = NOTHING if error is None else f"{100 * error:.1f}"
        second = card("Calibration error", told, "points between confidence and accuracy, on held-out photos.")
    size, stored = facts["bytes"]["model"] / MEGABYTE, facts["images"]["count"]
    return [
        first,
        second,
        card("Size", f"{size:.1f} <small>MB</small>", "of the model; generations kept for undo come on top."),
        card("Images stored", str(stored), "training photos that are in the model."),
    ]


def _series(facts: Facts, measured: Measured | None) -> dict[str, Sequence[float | None]]:
    found: dict[str, Sequence[float | None]] = {
        "when learned, held-out photos": [task["accuracy"] for task in facts["tasks"]],
        "now, estimated": [task["now"] for task in facts["tasks"]],
    }
    if measured is not None:
        found["now, these photos"] = measured["lessons"]
    return {name: values for name, values in found.items() if any(value is not None for value in values)}


def _lessons_figure(facts: Facts, measured: Measured | None) -> str:
    series = _series(facts, measured)
    if not series:
        return ""
    caption = "Per cent of photos of each lesson that are named right among all classes known at the time."
    return figure_section("lessons", "Accuracy by lesson", caption, model_figures.lessons(series))


def _lessons(facts: Facts, measured: Measured | None) -> Table:
    columns = ["lesson", "learned", "classes", "photos", "held out", "then", "now, estimated"]
    rows = []
    for place, task in enumerate(facts["tasks"]):
        when = NOTHING if task["when"] is None else task["when"][:10]
        numbers = [NOTHING if task[name] is None else str(task[name]) for name in ("classes", "images", "held_out")]
        row = [f"{task['index']}: {_subjects(task)}", when, *numbers, percent(task["accuracy"])]
        row.append(percent(task["now"]))
        rows.append([*row, *([] if measured is None else [percent(measured["lessons"][place])])])
    note = (
        "The estimate of the newest lesson is what its photos tell, held out or left out one by one; that of "
        "earlier ones follows from the eye's sums."
    )
    return Table("Lessons", [*columns, *([] if measured is None else ["these photos"])], rows, note)


def _confusion(facts: Facts, measured: Measured | None) -> str:
    names = [name for task in facts["tasks"] for name in task["names"]]
    classes = [task["classes"] for task in facts["tasks"]]
    if measured is not None:
        totals = [max(1, sum(row)) for row in measured["confusion"]]
        empty = float("nan")
        shares = [
            [100 * value / total if sum(row) else empty for value in row]
            for row, total in zip(measured["confusion"], totals, strict=True)
        ]
        caption = "Per cent of the photos of each class (row) that are taken for each class (column)."
        title = "Measured on these photos"
    elif facts["confusion"] is not None:
        shares, title = facts["confusion"], "Estimated from the eye's sums"
        caption = (
            "What the eye alone should take new photos of each class (row) for (column). The network's opinions, where "
            "the model has one, are not in it."
        )
    else:
        return ""
    figure = model_figures.confusion(shares, names, classes, title)
    return figure_section("confusion", "What is taken for what", caption, figure)


def _classes(measured: Measured) -> Table:
    names = measured["names"]
    rows = [
        [
            entry["name"],
            str(entry["photos"]),
            percent(entry["accuracy"]),
            str(entry["named"]),
            NOTHING if entry["taken_for"] is None else names[entry["taken_for"]],
        ]
        for entry in sorted(measured["classes"], key=lambda entry: (entry["accuracy"] is None, entry["accuracy"] or 0))
    ]
    columns = ["class", "photos", "right", "named so", "else mostly taken for"]
    return Table("Classes", columns, rows, "From the class that is recognised least often to the surest.")


def _calibration(facts: Facts, measured: Measured | None) -> str:
    curve = facts["calibration"].get("curve") if measured is None else measured["curve"]
    if not curve:
        return ""
    whose = "held-out photos of the newest lesson" if measured is None else "these photos"
    caption = f"How often the model is right where it is so sure, on {whose}. Below the line it is too sure."
    return figure_section("calibration", "Calibration", caption, model_figures.calibration(curve))


def _least_sure(measured: Measured) -> str:
    """Photos for someone to look at, shown from where they lie, as long as they do: the page holds no image."""
    if not measured["least_sure"]:
        return ""
    shown = "".join(
        f'<img src="{escape(Path(photo["file"]).resolve().as_uri())}" alt="" height="96" '
        f'title="{escape(photo["file"])}"> '
        for photo in measured["least_sure"]
    )
    rows = [
        [photo["file"], photo["label"], f"{100 * photo['probability']:.1f} %", photo["guess"]]
        for photo in measured["least_sure"]
    ]
    table = Table("", ["photo", "class", "probability of it", "taken for"], rows, "A wrong label is often among these.")
    return f"<section><h2>Photos it is least sure of</h2><p>{shown}</p>{table.html()}</section>"


def _parts(facts: Facts, measured: Measured | None) -> Table:
    if measured is not None:
        alone, column = dict(measured["parts"]), "alone"
        note = "Alone: what a part would reach on these photos if it decided without the others."
    else:
        alone = {part["knows"]: part["alone"] for part in facts["parts"] if part["alone"] is not None}
        column = "alone, estimated"
        note = (
            "Alone: what a part should reach if it decided without the others. Sums tell it of the eye, photos of all."
        )
    rows = [[part["part"], f"{part['bytes']:,}", percent(alone.pop(part["knows"], None))] for part in facts["parts"]]
    rows += [[name, NOTHING, percent(value)] for name, value in alone.items()]
    return Table("Parts", ["part", "bytes", column], rows, note)


def _history(events: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for event in events:
        learned = event["what"] == "learned"
        about = _subjects(event) if learned else event["text"]
        when = NOTHING if event["when"] is None else event["when"][:16].replace("T", " ")
        what = f"lesson {event['lesson']}" if learned else event["what"]
        rows.append([f"{what}: {about}", when, str(event["classes"])])
    return Table("History", ["what", "when", "classes then"], rows)


def _counted(count: int, what: str) -> str:
    ending = "es" if what.endswith("s") else "s"
    return f"{count} {what}{ending * (count != 1)}"


def _named(names: Sequence[str], shown: int = 6) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _subjects(lesson: Mapping[str, Any]) -> str:
    """What a lesson was about: new classes, more of known ones, or nothing that was not forgotten since."""
    again = [f"more of {_named(lesson['again'])}"] if lesson["again"] else []
    return " and ".join([*([_named(lesson["names"])] if lesson["names"] else []), *again]) or NOTHING


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f} %"
