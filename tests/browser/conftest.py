"""One browser and one service for each worker; each test has an account, a person and a browser context of its own.

`page` is a page of the console for `user`, the owner of a new account with a key and a verified domain. Find things by
role and label (`page.page.get_by_role("button", name="New stream")`), as a person does. A script error, a violation of
the content security policy or an answer of 5xx fails the test. Without Chromium the tests are skipped.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, async_playwright

from loadtests.kit.service import Service
from ops.host import chromium
from tests.harness import posted_events
from tests.harness.accounts import PEPPER
from tests.harness.api import Api
from tests.harness.browser import ARGUMENTS, ConsolePage, ConsoleUser, new_user, opened
from tests.harness.service import running

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, so that `-m browser` selects them."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Run the browser of this worker."""
    program = chromium.find(os.environ)
    if program is None:
        pytest.skip(chromium.MISSING)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield started
        await started.close()


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """Run `ops up`, with short leases and retries."""
    # The pepper lets the fixtures of other tests make keys and sessions. All tests sign in from one network: with the
    # default of 5 tries a minute, the sixth would fail.
    with running({"KEY_PEPPER": PEPPER, "SIGN_IN_RATE": "60"}) as started:
        yield started
        posted_events.check(started.settings)


@pytest.fixture
def served(service: Service, http: aiohttp.ClientSession) -> Api:
    """Return a client of the service's API."""
    return Api(service.base_url, http)


@pytest.fixture
async def user(service: Service) -> ConsoleUser:
    """Return the owner of a new account."""
    return await new_user(service)


@pytest.fixture
async def page(browser: Browser, service: Service, user: ConsoleUser) -> AsyncIterator[ConsolePage]:
    """Yield a page of the console for `user`, 1280 px wide, in light colours."""
    async with opened(browser, service.base_url, user) as shown:
        yield shown
