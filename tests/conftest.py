"""What holds for all tests: the summary counts those that no browser could run."""

from collections.abc import Iterator

import pytest
from helpers.browser import MISSING


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run without a browser must not look like one in which the page was tested."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(MISSING in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests skipped for want of a browser: make browser installs Chromium")


@pytest.fixture(scope="module")
def small_eyes() -> Iterator[None]:
    """Of all runs of the paper's recipes, so that recipes share them as they always do."""
    from helpers.recipes import few_features  # with torch and all methods, which not every test needs

    with few_features():
        yield
