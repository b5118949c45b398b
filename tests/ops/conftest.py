"""Installations on servers of their own, for the operator's commands."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ops.host.state import make_state
from tests.harness.accounts import PEPPER
from tests.ops.installation import environ

NewDatabase = Callable[[], Awaitable[str]]


@pytest.fixture
def given(own_database: str, redis_url: str, tmp_path: Path) -> dict[str, str]:
    """An installation on given servers that does not run."""
    state = make_state(tmp_path / "state")
    return environ(state, WAYBILL_DATABASE_URL=own_database, WAYBILL_REDIS_URL=redis_url, WAYBILL_KEY_PEPPER=PEPPER)
