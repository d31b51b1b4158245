"""The budget for ImageNet100 is what its own code counts."""

import contextlib
import io
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.repeats

COLUMN = 52  # where the numbers begin
DOCUMENT = Path(__file__).parents[2] / "docs" / "imagenet100-budget.md"


def test_the_printed_budget_is_what_the_code_above_it_counts() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    [(code, printed)] = re.findall(r"^```python\n([^`]*)^```\n\n```text\n([^`]*)^```$", text, re.MULTILINE)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(DOCUMENT), "exec"), {})
    counted, written = out.getvalue().splitlines(), printed.splitlines()
    assert len(written) == 20
    for now, then in zip(counted, written, strict=True):
        assert now[:COLUMN] == then[:COLUMN]
        assert float(now[COLUMN:].split()[0]) == pytest.approx(float(then[COLUMN:].split()[0]), rel=0.1)
        assert now[COLUMN:].split()[1:] == then[COLUMN:].split()[1:]
