"""Detect cancellations that a driver has swallowed. Only the modules that translate errors of PostgreSQL and Redis use
it.
"""

import asyncio


def raise_if_cancelled(error: BaseException | None = None) -> None:
    """Raise CancelledError, from `error`, if the task is being cancelled.

    A driver's time-out, rollback or release that fails at that moment replaces the CancelledError by an error of its
    own, and a loop that survives errors would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error
