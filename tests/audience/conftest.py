"""Fixtures that several modules of this folder share."""

from collections.abc import AsyncIterator

import pytest

from engine.base.settings import Settings
from tests.harness.broadcasts import BroadcastWorld, broadcasting


@pytest.fixture
async def here(settings: Settings) -> AsyncIterator[BroadcastWorld]:
    """Run a world of broadcasts."""
    async with broadcasting(settings) as made:
        yield made
