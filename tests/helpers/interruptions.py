"""A process that ends at any moment, as far as the disk can tell."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class KilledError(BaseException):
    """Stands for a process that ends here."""


def interrupt(monkeypatch: pytest.MonkeyPatch, moment: int, failure: BaseException) -> Callable[[], bool]:
    """Let the given call of those that reach the disk fail, counted from 1; says whether it came to that."""
    calls = 0

    def counted(intact: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == moment:
                raise failure
            return intact(*arguments, **named)

        return call

    monkeypatch.setattr(os, "fsync", counted(os.fsync))
    for name in ("rename", "replace"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    if isinstance(failure, KilledError):
        monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    return lambda: calls >= moment
