"""What several tests of the documents need."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import ADD_A_METHOD, code_blocks

import gcab.methods


@pytest.fixture
def example_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The documented method, in a file of its own that the registry finds as if it lay in the package's folder."""
    [example] = code_blocks(ADD_A_METHOD, "python")
    assert len(example.splitlines()) < 62
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "old_answers.py").write_text(example, encoding="utf-8")
    monkeypatch.setattr(gcab.methods, "__path__", [*gcab.methods.__path__, str(folder)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield "old-answers"
    sys.modules.pop("gcab.methods.old_answers", None)
    vars(gcab.methods).pop("old_answers", None)
