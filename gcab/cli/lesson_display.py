"""Progress of a lesson: a bar in a terminal, plain lines elsewhere, or JSON for programs."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import TextColumn

from gcab.cli.verbs import counted
from gcab.sizes import pixels
from gcab.terminal import Display


class LessonDisplay(Display):
    """Follows the events of one lesson; use as a context manager and as its progress."""

    def __init__(self, console: Console, title: str) -> None:
        state = TextColumn("{task.fields[state]}", style="dim")
        super().__init__(console, title, state, total=None, state="reading photos")
        self.work = "finishing"  # what follows the epochs

    def __call__(self, event: dict[str, Any]) -> None:
        show = {
            "reading": self.reading,
            "start": self.start,
            "note": self.note,
            "epoch": self.epoch,
            "ending": self.ending,
        }
        if event["event"] in show:
            show[event["event"]](event)

    def reading(self, event: dict[str, Any]) -> None:
        state = f"reading photos: {event['done']} of {event['photos']}"
        self.progress.update(self.bar, total=event["photos"], completed=event["done"], state=state)
        if self.line_is_due():
            self.say(f"{self.title}  {state}")

    def start(self, event: dict[str, Any]) -> None:
        size, held_out, epochs, new = event["image_size"], event["held_out"], event["epochs"], len(event["classes"])
        count = counted(new, "class")
        self.say(
            f"{self.title}  learning {subjects([count] if new else [], event['again'])} "
            f"from {counted(event['images'], 'photo')} ({held_out} held out), {pixels(size)}, "
            f"on {event['device']}: "
            f"about {duration(event['estimated_seconds'])}"
            + (f" or less for {counted(epochs, 'epoch')}" if epochs else "")
        )
        self.work = "finishing" if epochs else "learning"
        self.progress.update(self.bar, total=epochs or None, completed=0, state="")

    def epoch(self, event: dict[str, Any]) -> None:
        accuracy = event["held_out_accuracy"]
        told = "" if accuracy is None else f"  held out {accuracy:.1f} %"
        state = f"loss {event['loss']:.3f}{told}  {duration(event['seconds_left'])} left"
        where = f"{self.title}  epoch {event['epoch']}/{event['epochs']}"
        self.progress.update(self.bar, completed=event["epoch"], description=escape(where), state=state)
        if self.line_is_due():
            self.say(f"{where}  {state}")

    def ending(self, event: dict[str, Any]) -> None:
        """Restart the bar for the work after the last epoch, or for all of it where there are no epochs."""
        where, state = f"{self.title}  {self.work}", f"{duration(event['seconds_left'])} left"
        self.progress.update(self.bar, total=1.0, completed=event["share"], description=escape(where), state=state)
        if self.line_is_due():
            self.say(f"{where}: {100 * event['share']:.0f} %  {state}")

    def note(self, event: dict[str, Any]) -> None:
        self.say(f"{self.title}  {event['text']}")


def print_json(console: Console, value: Any, indent: int | None = None) -> None:
    """Print JSON unwrapped and flushed, one object per line."""
    print(json.dumps(value, indent=indent, allow_nan=False), file=console.file, flush=True)


def subjects(new: Sequence[str], again: Sequence[str]) -> str:
    """The classes of a lesson in words: new ones, and those known before."""
    return " and ".join([*([", ".join(new)] if new else []), *([f"more of {', '.join(again)}"] if again else [])])


def duration(seconds: float) -> str:
    """A duration in readable units."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def amount(count: int) -> str:
    """Bytes in readable units."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
