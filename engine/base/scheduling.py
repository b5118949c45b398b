"""The scheduling policy of Waybill's processes; each sets it at its start, before it has threads, which inherit it."""

import os
from contextlib import suppress


def yield_to_running() -> None:
    """Make this process, whenever it wakes, wait for the end of a running one's time slice (SCHED_BATCH, sched(7)).

    By default a process that wakes preempts the running one, which is often of the same message's way: an event loop
    woke a thread of its own HTTP server and was suspended for it. Measured: ops/decisions/0007. Does nothing where the
    kernel has no such policy or forbids it.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
