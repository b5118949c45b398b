"""Fixtures for SMTP submission."""

from collections.abc import AsyncIterator

import pytest

from engine.base.settings import Settings
from tests.harness.accounts import TestAccount
from tests.harness.submission import Client, TestRelay, relaying


@pytest.fixture(scope="module")
async def relay(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestRelay]:
    """Run a server of SMTP submission for the tests of a module."""
    async with relaying(settings, tmp_path_factory.mktemp("relay")) as running:
        yield running


@pytest.fixture
async def client(relay: TestRelay, account: TestAccount) -> AsyncIterator[Client]:
    """Open a session that is signed in as the account."""
    opened = await relay.logged_in(account)
    yield opened
    await opened.close()
