"""How long a test waits for what must come: a bound that ends a hang, far above what a busy machine takes.

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
