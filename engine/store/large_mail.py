"""Do the pure work on large messages in a thread, and that on very large ones in one thread, one after the other.

Such work holds the interpreter lock most of the time. Several threads of it would leave the event loop, which serves
all other mail, a small part of the time; one thread, which works in slices, leaves it more than half.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LARGE_BYTES: Final = 256 * 1024  # work on more takes over 1 ms, so a thread does it
VERY_LARGE_BYTES: Final = 1024 * 1024  # about 10 ms of work
# How long a thread that works on a large message keeps the interpreter lock while the event loop waits for it.
SWITCH_S: Final = 0.001

T = TypeVar("T")
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="very-large-mail")


def give_way() -> None:
    """Let threads of this process give way to its event loop after `SWITCH_S`."""
    sys.setswitchinterval(SWITCH_S)


async def in_thread(size_bytes: int, work: Callable[[], T]) -> T:
    """Return the result of pure work on a message of `size_bytes`."""
    executor = _thread if size_bytes > VERY_LARGE_BYTES else None
    return await asyncio.get_running_loop().run_in_executor(executor, work)


async def run_sized(size_bytes: int, work: Callable[[], T]) -> T:
    """Run `work`, in a thread if its `size_bytes` would block the event loop for long."""
    return await in_thread(size_bytes, work) if size_bytes > LARGE_BYTES else work()
