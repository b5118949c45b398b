"""The scheduling policy and garbage collection of Waybill's processes.

A process sets its policy at its start, before it has threads, which inherit it.
"""

import gc
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


def keep_loaded() -> None:
    """Tune the garbage collector for a process whose modules stay loaded and whose work makes few cycles.

    The default collects 70 times as often.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
