"""Search spaces of `gcab search`: a range for each of a few settings, declared in the method's own file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Range(Protocol):
    """Values that a search may give a setting; `str` describes them."""

    def at(self, place: float, default: Any) -> Any:
        """The value at a quantile `place` from 0 to below 1."""


Space = Mapping[str, Range]  # dotted setting -> its range
NOTHING: Space = {}  # for methods that have nothing to choose


def rounded(value: float) -> float:
    """Rounded to two significant digits, as a person will type it."""
    return float(f"{value:.2g}")


@dataclass(frozen=True)
class Between:
    """Log-uniform between two values."""

    low: float
    high: float

    def at(self, place: float, default: Any) -> float:  # noqa: ARG002
        return rounded(self.low * (self.high / self.low) ** place)

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Near:
    """Log-uniform within a factor of `times` around the default, for what data sets and profiles set."""

    times: float

    def at(self, place: float, default: Any) -> float:
        return Between(default / self.times, default * self.times).at(place, default)

    def __str__(self) -> str:
        return f"up to {self.times:g} times less or more than its default"


class OneOf:
    """A few values; the default is one of them."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def at(self, place: float, default: Any) -> Any:  # noqa: ARG002
        return self.values[int(place * len(self.values))]

    def __str__(self) -> str:
        return "among " + ", ".join(map(str, self.values))


def space(**options: Range) -> Space:
    """The learning rate, and some of the method's own options."""
    return {"training.lr": Near(8), **{f"options.{name}": values for name, values in options.items()}}
