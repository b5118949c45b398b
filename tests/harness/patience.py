"""The time limit of waits in tests: it ends a hang, and is far above the time that a busy machine needs.

A test that is about time compares with what would happen otherwise, and lets that take far longer than a machine can
stall; it never asserts how fast the machine is.
"""

import asyncio
from collections.abc import Callable

PATIENCE_S = 60.0


async def until(true: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait for something in memory."""
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.01)
