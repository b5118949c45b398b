"""A service that the journeys of one worker share; those that harm it start their own."""

from collections.abc import Iterator

import aiohttp
import pytest

from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from tests.harness import posted_events
from tests.harness.api import Api
from tests.harness.service import new_access, running


@pytest.fixture(scope="package")
def service() -> Iterator[Service]:
    """`ops up`, as it comes. At the end, all events that it recorded are as their description says.

    It ends with the last journey: an idle service still takes processor time from the other tests.
    """
    with running() as started:
        yield started
        posted_events.check(started.settings)


@pytest.fixture
def served(service: Service, http: aiohttp.ClientSession) -> Api:
    """A client of its API."""
    return Api(service.base_url, http)


@pytest.fixture
async def access(service: Service) -> ApiAccess:
    """An account of the test's own on it."""
    return await new_access(service)
