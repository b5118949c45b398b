"""Do the pure work on large messages in a thread, and that on very large ones in one thread, one after the other.

Such work holds the interpreter lock most of the time. Several threads of it would leave the event loop, which serves
all other mail, a small part of the time; one thread, which works in slices, leaves it more than half.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

VERY_LARGE_BYTES: Final = 1024 * 1024  # about 10 ms of work

T = TypeVar("T")
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="very-large-mail")


async def in_thread(size_bytes: int, work: Callable[[], T]) -> T:
    """Return the result of pure work on a message of `size_bytes`."""
    executor = _thread if size_bytes > VERY_LARGE_BYTES else None
    return await asyncio.get_running_loop().run_in_executor(executor, work)
