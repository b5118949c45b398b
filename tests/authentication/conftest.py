"""A DNS server on loopback and the resolver that queries it, empty for each test."""

from collections.abc import AsyncIterator

import pytest

from engine.base.settings import HostPort
from engine.store.resolver import Resolver
from ops.local.dns import Responder
from tests.harness.patience import PATIENCE_S


@pytest.fixture
async def resolver(zone: Responder) -> AsyncIterator[Resolver]:
    resolver = Resolver((HostPort(*zone.address),), query_timeout_s=1.5, budget_s=PATIENCE_S)
    yield resolver
    await resolver.close()
