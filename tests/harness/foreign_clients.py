"""Other services' clients for Python, pointed at this service."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import resend

from tests.harness.api import Api

Value = TypeVar("Value")


async def called(work: Callable[[], Value]) -> Value:
    """Run a call of a client that blocks."""
    return await asyncio.to_thread(work)


@contextmanager
def resend_pointing_at(api: Api, token: str) -> Iterator[None]:
    """Change the two settings that somebody who switches would change."""
    before = resend.api_key, resend.api_url
    resend.api_key, resend.api_url = token, f"{api.base_url}/v1/compat/resend"
    yield
    resend.api_key, resend.api_url = before
