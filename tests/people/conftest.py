"""Fixtures for sign-in with an identity provider."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from engine.base.settings import Settings
from tests.harness.api import Api, serving
from tests.harness.provider import Browser, TestProvider, providing, with_provider


@pytest.fixture(scope="module")
async def running_provider() -> AsyncIterator[TestProvider]:
    """Run one OpenID Connect provider for the tests of a module."""
    async with providing() as running:
        yield running


@pytest.fixture
def provider(running_provider: TestProvider) -> TestProvider:
    """Return the provider with its default behaviour."""
    running_provider.reset()
    return running_provider


@pytest.fixture(scope="module")
def provider_settings(settings: Settings, running_provider: TestProvider) -> Settings:
    """Return settings with the provider for sign-in."""
    return with_provider(settings, running_provider.issuer)


@pytest.fixture(scope="module")
def idp_url(provider_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run an API with these settings and yield its URL."""
    with serving(provider_settings, tmp_path_factory.mktemp("idp") / "api.log") as url:
        yield url


@pytest.fixture(scope="module")
def idp(idp_url: str, http: aiohttp.ClientSession) -> Api:
    """Return a client of the API whose users sign in with the provider."""
    return Api(idp_url, http)


@pytest.fixture
def browser(idp: Api) -> Browser:
    """Return a browser without cookies."""
    return Browser(idp)
