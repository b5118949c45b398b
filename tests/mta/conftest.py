"""The fixture `here`: everything that a delivery needs, see `tests.harness.outbound`."""

from collections.abc import AsyncIterator

import pytest

from engine.base.settings import Settings
from mta.outbound.sites import remote_hosts, site
from tests.conftest import NewDatabase
from tests.harness.outbound import World, world


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Yield a World with its own database; silent sites are probed again after 0.2 s."""
    monkeypatch.setattr(site, "REST_S", 0.2)
    monkeypatch.setattr(remote_hosts, "REST_S", 0.2)
    async with world(settings, await new_database()) as made:
        yield made
