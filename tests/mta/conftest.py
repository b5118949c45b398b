"""The fixture `here`: everything that a delivery needs, see `tests.harness.outbound`."""

from collections.abc import AsyncIterator, Iterator

import pytest

from engine.base.settings import Settings
from mta.outbound.sites import remote_hosts, site
from tests.conftest import NewDatabase
from tests.harness.domains import Place
from tests.harness.outbound import World, world
from tests.harness.transport import Certified, authority, forget_sessions


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Yield a World with its own database; silent sites are probed again after 0.2 s."""
    monkeypatch.setattr(site, "REST_S", 0.2)
    monkeypatch.setattr(remote_hosts, "REST_S", 0.2)
    async with world(settings, await new_database()) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_session() -> Iterator[None]:
    """Forget TLS sessions before and after each test."""
    forget_sessions()
    yield
    forget_sessions()


@pytest.fixture(scope="module")
def root() -> Certified:
    """Return a certificate authority."""
    return authority()


@pytest.fixture
def place(here: World) -> Place:
    """Return the domains of the world."""
    return Place(here.pool, here.settings, here.dns)
