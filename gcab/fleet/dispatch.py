"""Dispatching runs to an engine: lost ones are retried, and one that fails does not stop the others."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from gcab.errors import GcabError
from gcab.fleet.engine import Call, Engine, Outcome
from gcab.terminal import visible

TRIES = 3
LOOK_SECONDS = 5.0  # between looks at what waits for its next try


@dataclass(frozen=True)
class Work:
    """A run: the call for a worker, and the callback here that gets what it returned."""

    name: str
    call: Call
    finished: Callable[[str], str]  # -> what to tell of it; raises GcabError where its results are not to be found


def run_all(works: Sequence[Work], engine: Engine, console: Console, tries: int = TRIES) -> None:
    """Run all; raises an error at the end that names those that failed for good."""
    if not works:
        return
    with engine:
        failed = Dispatcher(works, engine, console, tries).run()
    if failed:
        raise GcabError(
            f"{len(failed)} of {len(works)} runs failed ({'; '.join(failed)}): what they said is above; "
            "the same command continues what is left."
        )


class Dispatcher:
    """Which runs wait, which are running, and which have failed."""

    def __init__(self, works: Sequence[Work], engine: Engine, console: Console, tries: int) -> None:
        self.works, self.engine, self.console, self.tries = works, engine, console, tries
        self.waiting = dict.fromkeys(range(len(works)), 0.0)  # -> when it may be started
        self.tried = [0] * len(works)
        self.running: set[int] = set()
        self.failed: list[str] = []

    def run(self) -> list[str]:
        """Run all; returns the names of those that failed."""
        while self.waiting or self.running:
            self.start_what_may()
            if not self.running:
                time.sleep(min(LOOK_SECONDS, max(0.0, min(self.waiting.values()) - time.monotonic())))
            else:
                for number, outcome in self.engine.ended(LOOK_SECONDS).items():
                    self.running.remove(number)
                    self.take(number, outcome)
        return self.failed

    def start_what_may(self) -> None:
        for number, when in list(self.waiting.items()):
            if self.engine.at_once is not None and len(self.running) >= self.engine.at_once:
                return
            if when <= time.monotonic():
                del self.waiting[number]
                self.tried[number] += 1
                self.running.add(number)
                self.engine.start(number, self.works[number].call)

    def take(self, number: int, outcome: Outcome) -> None:
        work, title = self.works[number], f"{number + 1} of {len(self.works)}: {self.works[number].name}"
        problem = outcome.problem
        if not problem:
            try:
                told = work.finished(outcome.said)
            except GcabError as error:
                problem = str(error)
            else:
                if not self.engine.shows_output:
                    self.say(f"{title}: {told}")
                return
        if outcome.again and self.tried[number] < self.tries:
            self.say(f"{title}: {problem}; trying again ({self.tried[number] + 1} of {self.tries})")
            self.waiting[number] = time.monotonic() + outcome.pause
            return
        self.failed.append(work.name)
        self.say(f"{title}: {problem}")

    def say(self, text: str) -> None:
        self.console.print(escape(visible(text)), highlight=False, soft_wrap=True)
