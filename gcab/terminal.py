"""Progress displays: a bar in a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

LINE_SECONDS = 10.0  # between progress lines where there is no terminal


def visible(text: str) -> str:
    """Control characters as escapes: a name must not move the cursor, end a line or turn the text round."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Display:
    """A progress bar as a context manager; `fields` are what further columns show at first."""

    def __init__(
        self, console: Console, title: str, *columns: ProgressColumn, total: float | None, **fields: Any
    ) -> None:
        self.console, self.title = console, title
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.bar = self.progress.add_task(escape(title), total=total, **fields)
        self.spoke = time.monotonic()

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def line_is_due(self) -> bool:
        """Whether to print a line now, because there is no terminal and the last one is a while ago."""
        if self.console.is_terminal or (now := time.monotonic()) - self.spoke <= LINE_SECONDS:
            return False
        self.spoke = now
        return True

    def say(self, text: str) -> None:
        """One line, however narrow the window: a broken line could not be searched for."""
        self.console.print(escape(visible(text)), highlight=False, soft_wrap=True)


class WorkDisplay(Display):
    """A progress bar for one piece of work; use as a context manager and as its progress callback."""

    def __init__(self, console: Console, title: str) -> None:
        super().__init__(console, title, TimeRemainingColumn(), total=1.0)
        self.since: tuple[float, float] | None = None  # (time, share) from which on the speed is measured

    def __call__(self, share: float) -> None:
        self.progress.update(self.bar, completed=share)
        self.since = self.since or (time.monotonic(), share)  # what is continued has a share behind it at once
        if self.line_is_due():
            began, before = self.since
            left = (time.monotonic() - began) * (1 - share) / (share - before) if share > before else None
            self.say(f"{self.title}: {100 * share:.0f} %" + ("" if left is None else f", about {left:.0f} s left"))

    def note(self, text: str) -> None:
        """Print a message for the user."""
        self.say(f"{self.title}: {text}")


class RunDisplay(Display):
    """A progress bar for one run; use as a context manager and as the callback that gets its records."""

    def __init__(self, console: Console, title: str, epochs: Sequence[int]) -> None:
        """`epochs` of each task."""
        losses = TextColumn("{task.fields[losses]}", style="dim")
        super().__init__(console, title, TimeRemainingColumn(), losses, total=sum(epochs), losses="")
        self.tasks, self.epochs = len(epochs), epochs

    def __call__(self, record: dict[str, Any]) -> None:
        show = {
            "epoch": self.epoch,
            "ending": self.ending,
            "task": self.task,
            "warning": self.warning,
            "resumed": self.resumed,
        }
        if record["kind"] in show:
            show[record["kind"]](record)

    def epoch(self, record: dict[str, Any]) -> None:
        losses = "  ".join(f"{name} {value:.3f}" for name, value in record["losses"].items())
        where = f"{self.title}  task {record['task']}/{self.tasks}  epoch {record['epoch']}/{record['epochs']}"
        done = sum(self.epochs[: record["task"] - 1]) + record["epoch"]
        self.progress.update(self.bar, completed=done, description=escape(where), losses=losses)
        if self.line_is_due():
            self.say(f"{where}  {losses}")

    def ending(self, record: dict[str, Any]) -> None:
        """What a method does after a task's last epoch, where that takes long."""
        where = f"{self.title}  task {record['task']}/{self.tasks}  finishing: {100 * record['share']:.0f} %"
        self.progress.update(self.bar, description=escape(where), losses="")
        if self.line_is_due():
            self.say(where)

    def task(self, record: dict[str, Any]) -> None:
        classes = record["classes"]
        average = sum(a * n for a, n in zip(record["tag"], classes, strict=True)) / sum(classes)
        aware = sum(record["taw"]) / len(record["taw"])
        self.say(
            f"{self.title}  task {record['task']} of {record['task'] if self.tasks == 1 else self.tasks} learned: "
            f"{average:.1f} % over {sum(classes)} classes, {aware:.1f} % when told the task ({record['seconds']:.0f} s)"
        )

    def warning(self, record: dict[str, Any]) -> None:
        self.console.print(f"[yellow]warning:[/] {escape(visible(record['text']))}", highlight=False, soft_wrap=True)

    def resumed(self, record: dict[str, Any]) -> None:
        where = (
            f"after epoch {record['epoch']} of task {record['task']}" if record["epoch"] else f"task {record['task']}"
        )
        self.say(f"{self.title}  continuing: {where}")
