"""Shared parts of the measuring commands: expected failures, interruption by signals, and a lock for one at a time."""

import asyncio
import contextlib
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from engine.base.errors import Refusal
from engine.base.settings import BadSetting
from engine.store.database_errors import DatabaseUnavailable
from loadtests.bench import flame_graphs
from loadtests.bench.load import GeneratorFailed
from loadtests.bench.report import Progress
from ops.admin import ApiCallError
from ops.host.process_specs import PortTaken
from ops.host.server_paths import CannotServe
from ops.host.state import UnusableState
from ops.host.supervise import StartFailed

INTERRUPTED: Final = 130  # exit status after a signal
_TURN_POLL_S: Final = 0.2
Result = TypeVar("Result")


class BenchFailed(RuntimeError):  # noqa: N818 - named for what happened
    """A measurement failed; the text says why."""


FAILURES: Final = (
    ApiCallError, BadSetting, BenchFailed, CannotServe, GeneratorFailed, PortTaken, Refusal, StartFailed, UnusableState,
    DatabaseUnavailable, flame_graphs.NoProfiler,
)  # fmt: skip


def measured(work: Awaitable[Result], progress: Progress, *failures: type[Exception]) -> Result:
    """Run a measurement while this process holds the machine; return its result.

    Ends the process with a sentence and status 1 when it fails, also by one of `failures`, and with 130 after a signal.
    """
    expected: tuple[type[Exception], ...] = (*FAILURES, *failures)
    try:
        with machine_lock(progress.say):
            return asyncio.run(interruptible(work))
    except expected as error:
        progress.fail(str(error) or type(error).__name__)
        raise SystemExit(1) from None
    except (asyncio.CancelledError, KeyboardInterrupt):
        progress.fail("Interrupted: nothing was measured.")
        raise SystemExit(INTERRUPTED) from None


async def interruptible(work: Awaitable[Result]) -> Result:
    """Run `work` and cancel it at the first signal, so that everything it started is stopped.

    Further signals change nothing. Raises CancelledError after a signal.
    """
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


@contextlib.contextmanager
def machine_lock(say: Callable[[str], None]) -> Iterator[None]:
    """Hold the machine for one measurement, since two would slow each other down; wait for the one that holds it."""
    path = Path(tempfile.gettempdir()) / "waybill-bench.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError:  # another user's file: this process can't see whether that user measures
        yield
        return
    with os.fdopen(descriptor, "r+") as lock:
        waiting = False
        while not _locked(lock.fileno()):
            if not waiting:
                say("Another bench runs on this machine; waiting until it ends")
            waiting = True
            time.sleep(_TURN_POLL_S)
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
