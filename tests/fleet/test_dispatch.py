"""Every run is brought to its end: tries are counted, failures are named, and nobody waits for a lost one."""

import io
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from gcab.errors import GcabError
from gcab.fleet.dispatch import Work, run_all
from gcab.fleet.engine import OCCUPIED_SECONDS, Call, Engine, Outcome, attempt
from gcab.runs.lock import RunLock

LOST = Outcome(problem="lost", again=True)


class Scripted(Engine):
    """Every try ends as it was written down; the first that was started ends first."""

    def __init__(self, at_once: int | None, outcomes: Sequence[Sequence[Outcome]]) -> None:
        super().__init__(at_once)
        self.outcomes = [list(tries) for tries in outcomes]
        self.running: list[int] = []
        self.most, self.started, self.closed = 0, list[int](), False

    def open(self) -> None:
        """Always open."""

    def start(self, number: int, call: Call) -> None:
        assert call() == str(number)
        self.running.append(number)
        self.started.append(number)
        self.most = max(self.most, len(self.running))

    def ended(self, seconds: float) -> dict[int, Outcome]:  # noqa: ARG002
        number = self.running.pop(0)
        return {number: self.outcomes[number].pop(0)}

    def close(self) -> None:
        self.closed = True


def works(count: int, finished: Callable[[str], str] = lambda said: f"said {said}") -> list[Work]:
    return [Work(f"run {number}", partial(str, number), finished) for number in range(count)]


def run(engine: Engine, count: int, tries: int = 3) -> str:
    said = io.StringIO()
    try:
        run_all(works(count), engine, Console(file=said, width=200), tries)
    except GcabError as error:
        said.write(f"error: {error}")
    return said.getvalue()


def test_lost_runs_are_tried_again_behind_the_others() -> None:
    engine = Scripted(2, [[LOST, LOST, Outcome("x")], [Outcome("y")], [Outcome("z")]])
    said = run(engine, 3)
    assert engine.started == [0, 1, 2, 0, 0]
    assert engine.most == 2
    assert engine.closed
    assert "1 of 3: run 0: lost; trying again (2 of 3)" in said
    assert "1 of 3: run 0: said x" in said
    assert "error" not in said


def test_what_fails_for_good_is_named_and_the_others_go_on() -> None:
    engine = Scripted(None, [[LOST] * 3, [Outcome(problem="no such data")], [Outcome("z")]])
    said = run(engine, 3)
    assert engine.started == [0, 1, 2, 0, 0]  # what a run says itself would be said again
    assert engine.most == 3
    assert "2 of 3: run 1: no such data\n" in said
    assert "3 of 3: run 2: said z" in said
    assert said.endswith(
        "error: 2 of 3 runs failed (run 1; run 0): what they said is above; the same command continues what is left."
    )


def test_results_that_are_not_here_are_a_failure() -> None:
    def finished(_: str) -> str:
        raise GcabError("nothing here")

    engine = Scripted(None, [[Outcome("x")]])
    with pytest.raises(GcabError, match="1 of 1 runs failed"):
        run_all(works(1, finished), engine, Console(file=io.StringIO()))


def test_an_occupied_run_waits_for_its_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    occupied = Outcome(problem="occupied", again=True, pause=OCCUPIED_SECONDS)
    engine = Scripted(None, [[occupied, Outcome("x")]])
    assert "said x" in run(engine, 1)
    assert now[0] == OCCUPIED_SECONDS


def test_the_engine_is_closed_when_the_command_is_interrupted() -> None:
    class Interrupted(Scripted):
        def ended(self, seconds: float) -> dict[int, Outcome]:
            raise KeyboardInterrupt(seconds)

    engine = Interrupted(None, [[]])
    with pytest.raises(KeyboardInterrupt):
        run(engine, 1)
    assert engine.closed


def test_how_a_call_ends_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: Exception) -> str:
        raise error

    def occupied() -> str:
        with RunLock(tmp_path), RunLock(tmp_path):
            return ""

    assert attempt(lambda: "x") == Outcome("x")
    assert attempt(lambda: fail(GcabError("a sentence."))) == Outcome(problem="a sentence.")
    assert attempt(lambda: fail(OSError("stale"))) == Outcome(problem="stale", again=True)
    assert (attempt(occupied).again, attempt(occupied).pause) == (True, OCCUPIED_SECONDS)
    assert capsys.readouterr().err == ""
    assert attempt(lambda: fail(ValueError("\n no memory\nmore"))) == Outcome(
        problem="ValueError: no memory", again=True
    )
    assert "Traceback" in capsys.readouterr().err
