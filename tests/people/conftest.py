"""Fixtures for sign-in with an identity provider."""

from collections.abc import AsyncIterator

import pytest

from engine.base.settings import Settings
from tests.conftest import ServeApi
from tests.harness.api import Api
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
def idp(provider_settings: Settings, serve: ServeApi) -> Api:
    """Return a client of an API whose users sign in with the provider."""
    return serve(provider_settings)


@pytest.fixture
def browser(idp: Api) -> Browser:
    """Return a browser without cookies."""
    return Browser(idp)
