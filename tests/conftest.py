"""What holds for all tests: the summary counts those that no browser could run."""

import pytest
from helpers.browser import MISSING


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run without a browser must not look like one in which the page was tested."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(MISSING in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests skipped for want of a browser: make browser installs Chromium")
