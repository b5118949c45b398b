"""Fixtures for SMTP submission."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from engine.base.settings import Settings
from tests.harness.accounts import TestAccount, make_account
from tests.harness.submission import TestRelay, relaying


@pytest.fixture(scope="module")
async def relay(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestRelay]:
    """Run a server of SMTP submission for the tests of a module."""
    async with relaying(settings, tmp_path_factory.mktemp("relay")) as running:
        yield running


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    """Make an account."""
    return await make_account(pool)
