"""The parts of a recipe: runs by their settings, and what is made of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FAST = (0.8,)  # the capacity of the paper's tables
Changes = Mapping[str, Any]  # dotted setting -> value


@dataclass(frozen=True)
class Row:
    """One run, and what is made of it afterwards."""

    name: str
    method: str = "gcab"
    profile: str = "extended"
    changes: Changes = field(default_factory=dict)
    epochs: int | None = None  # a task, where the recipe's are not needed
    capacities: tuple[float, ...] = ()  # it is distilled to each of these shares of the decoder
    distillation: Changes = field(default_factory=dict)  # settings of that


@dataclass(frozen=True)
class Recipe:
    """A table or figure: its rows, on scenarios that the command line may replace."""

    title: str
    source: str  # where the paper has it
    rows: tuple[Row, ...]
    scenarios: tuple[str, ...] = ("cifar100/10",)
    epochs: int | None = None  # a task; None, or more than the scenario has: the scenario's own
    timed: bool = False  # the models' speed is measured too
    settings: Changes = field(default_factory=dict)  # of all rows; the command line overrides them
    whole: int | None = None  # epochs a task that are no reduction, where they are not the scenario's
