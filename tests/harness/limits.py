"""Time limits of tests: the mark `timeout(seconds)`, or DEFAULT_S.

A coroutine fails at its limit where it waits, with the service's logs, and the next test runs. What blocks the process
is ended by the first process (tests/harness/workers.py), if there is one; what computes while other programs have the
processors gets its limit in seconds of their time.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

DEFAULT_S = 120.0
KILL_AFTER_S = 20.0  # past the limit: time for a coroutine's fixtures to end
_COMPUTES = 0.02  # share of a processor that a test has at least that computes on a busy machine
_MOST = 5  # limits that it gets


def of(item: pytest.Item) -> float:
    """Return the limit of a test in seconds."""
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark else DEFAULT_S


def is_over(limit_s: float, passed_s: float, processor_s: float) -> bool:
    """Return True if a test that blocks its process must be ended: it began `passed_s` ago, and has used `processor_s`
    since."""
    if passed_s < limit_s + KILL_AFTER_S:
        return False
    return not _COMPUTES * passed_s < processor_s < limit_s or passed_s > _MOST * limit_s


def apply(item: pytest.Item) -> None:
    """Let a test that is a coroutine end at its limit."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _limited(item.obj, of(item))


def _limited(test: Callable[..., Awaitable[None]], limit_s: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def run(*args: Any, **fixtures: Any) -> None:
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                await test(*args, **fixtures)
        except TimeoutError as error:
            if limit.expired():
                error.add_note(f"Not done after {limit_s:.0f} s, the limit of this test.")
            raise

    return run
