"""Fixtures for pytest: `twin_service`, a service for this process, and `twin`, an account of its own for each test."""

from collections.abc import Iterator

import pytest

from .testing import Twin, TwinService, open_twin, running_service


@pytest.fixture(scope="session")
def twin_service() -> Iterator[TwinService]:
    """A Waybill in local mode that runs here."""
    with running_service() as service:
        yield service


@pytest.fixture
def twin(twin_service: TwinService, request: pytest.FixtureRequest) -> Iterator[Twin]:
    """An account of its own."""
    with open_twin(twin_service, request.node.name) as made:
        yield made
