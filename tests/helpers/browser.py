"""A real browser for the tests of the page, watched for everything that a good page never does."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

QUIET = "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
MISSING = "there is no chromium on this machine to show the page with"
PATIENCE = (
    300_000  # milliseconds; a busy machine is no failure, and a page that does what is expected is not waited for
)
SCREENSHOTS = os.environ.get("GCAB_PAGE_SCREENSHOTS")  # a folder; without it no picture is taken


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip(MISSING)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, chromium_sandbox=False, args=[*QUIET.split(), "--disable-sync"]
        )
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page, and what it did that nobody asked for."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._request)
        self.page.on("dialog", self._dialog)

    def _console(self, message: ConsoleMessage) -> None:
        # Chromium itself writes a line for every answer of 400 and above; those are the tests' own doing.
        if message.type in {"error", "warning"} and not message.text.startswith("Failed to load resource"):
            self.complaints.append(message.text)

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog said {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        place = urlsplit(request.url)
        if place.scheme not in {"data", "blob"} and f"{place.scheme}://{place.netloc}" != self.address:
            self.outside.append(request.url)

    def picture(self, name: str) -> None:
        """Keep a screenshot where a person asked for them."""
        if SCREENSHOTS:
            folder = Path(SCREENSHOTS)
            folder.mkdir(parents=True, exist_ok=True)
            self.page.wait_for_timeout(400)  # the bars grow
            self.page.screenshot(path=folder / f"{name}.png", full_page=True, caret="initial")

    def open_tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()


@contextmanager
def visit(
    browser: Browser, address: str, path: str = "/", width: int = 1280, height: int = 860, dark: bool = False
) -> Iterator[Visit]:
    """The page in a fresh browser profile; afterwards, nothing may have gone wrong unseen."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
    context.set_default_timeout(PATIENCE)
    visited = Visit(context.new_page(), address)
    visited.watch()
    visited.page.goto(address + path)
    yield visited
    context.close()
    assert visited.complaints == []
    assert visited.outside == []
