"""Fixtures that several modules of this folder share."""

from collections.abc import AsyncIterator

import pytest

from engine.base.settings import Settings
from tests.conftest import NewDatabase
from tests.harness.receiver import Receiver, World, world


@pytest.fixture(scope="module")
async def here(settings: Settings, lasting_database: NewDatabase) -> AsyncIterator[World]:
    """Run a world with a database of its own for the tests of a module."""
    async with world(settings, await lasting_database()) as one:
        yield one


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Run a server that receives posts."""
    async with Receiver() as one:
        yield one
