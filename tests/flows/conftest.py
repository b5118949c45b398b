"""Servers that a test may kill: apart from those that the other tests of the worker stand on."""

from collections.abc import AsyncIterator

import pytest

from engine.store.migrate import migrate
from ops.embedded import Temporary, temporary_servers


@pytest.fixture(scope="module")
async def mortal() -> AsyncIterator[Temporary]:
    """A migrated PostgreSQL and a Valkey of this module's own; a test that kills one starts it again."""
    with temporary_servers() as running:
        await migrate(running.database_url)
        yield running
