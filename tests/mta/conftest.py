"""A place to deliver in: see `tests.harness.outbound`."""

from collections.abc import AsyncIterator

import pytest

from engine.base.settings import Settings
from mta.outbound.sites import remote_hosts, site
from tests.conftest import NewDatabase
from tests.harness.outbound import World, world


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world with a queue of its own, in which dead sites are probed again within the patience of a test."""
    monkeypatch.setattr(site, "REST_S", 0.2)
    monkeypatch.setattr(remote_hosts, "REST_S", 0.2)
    async with world(settings, await new_database()) as made:
        yield made
