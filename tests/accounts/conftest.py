"""Fixtures for the operator's part of the API."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from engine.base.settings import Settings
from tests.conftest import NewDatabase
from tests.harness.operators import OperatorWorld, operating


@pytest.fixture(scope="module")
async def here(
    settings: Settings,
    lasting_database: NewDatabase,
    tmp_path_factory: pytest.TempPathFactory,
    http: aiohttp.ClientSession,
) -> AsyncIterator[OperatorWorld]:
    """Run an API with an operator for the tests of a module."""
    log = tmp_path_factory.mktemp("operator") / "api.log"
    async with operating(settings, await lasting_database(), log, http) as world:
        yield world
