"""A browser, and the page in it with a server that gives canned answers."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from helpers.browser import Visit, chromium, visit
from helpers.fake_server import Fake, running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def shown(browser: Browser, fake: Fake) -> Iterator[Visit]:
    with running(fake) as address, visit(browser, address) as visited:
        yield visited
