"""The interface of engines, which run calls somewhere, several at a time, and report how each of them ended."""

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from gcab.errors import GcabError, OccupiedError

Call = Callable[[], str]  # can be pickled and retried: what is finished of it is not computed twice
OCCUPIED_SECONDS = 60.0  # a shared disk may need as long to see that a machine has gone which held a file's lock


@dataclass(frozen=True)
class Outcome:
    """The outcome of one try of a call."""

    said: str = ""  # what it returned
    problem: str = ""
    again: bool = False  # a retry may succeed
    pause: float = 0.0  # seconds to wait before that


def attempt(call: Call) -> Outcome:
    """Make a call in a worker, and return its exception as an outcome."""
    try:
        return Outcome(said=call())
    except OccupiedError as error:
        return Outcome(problem=str(error), again=True, pause=OCCUPIED_SECONDS)
    except GcabError as error:
        return Outcome(problem=str(error))
    except OSError as error:
        return Outcome(problem=str(error), again=True)
    except Exception as error:
        traceback.print_exc()
        return Outcome(problem=f"{type(error).__name__}: {first_line(error)}", again=True)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, as libraries explain themselves at length."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class Engine(ABC):
    """Executes runs. Inside a `with` block it takes calls; what is still running at its end is stopped."""

    shows_output = False  # what calls print is seen here while they run

    def __init__(self, at_once: int | None) -> None:
        self.at_once = at_once  # None: as many as there is room for, which the engine knows

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def open(self) -> None:
        """Connect, or raise an error that says why that cannot be."""

    @abstractmethod
    def start(self, number: int, call: Call) -> None:
        """Submit a call, under a number by which its outcome will be known."""

    @abstractmethod
    def ended(self, seconds: float) -> dict[int, Outcome]:
        """Wait until a call has ended, but no longer than this."""

    @abstractmethod
    def close(self) -> None:
        """Stop what is running; checkpoints stay."""
