"""Fixtures for the server of incoming mail."""

from collections.abc import AsyncIterator

import pytest

from engine.base.settings import Settings
from tests.harness.inbound import TestMx, receiving


@pytest.fixture(scope="module")
async def mx(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestMx]:
    """Run a server for incoming mail for the tests of a module."""
    async with receiving(settings, tmp_path_factory.mktemp("mx")) as running:
        yield running
