"""Find cancellations that a driver has swallowed: called by the borders to PostgreSQL and Redis, and nowhere else."""

import asyncio


def raise_if_cancelled(error: BaseException | None = None) -> None:
    """Raise CancelledError, from `error`, where the task is being cancelled.

    A driver's time-out, rollback or release that fails at that moment replaces the CancelledError by an error of its
    own, and a loop that outlives errors would go on for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error
