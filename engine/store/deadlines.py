"""Limit the time of operations that mostly take milliseconds, with one timer per event loop for all of them.

A timer per operation costs about 5 µs, and a request has five time limits. Here a limit costs less than 1 µs and
expires up to `TICK_S` late, which is accurate enough for limits of seconds.
"""

import asyncio
import threading
import time
from types import TracebackType
from typing import Final

TICK_S: Final = 0.1


class within:  # noqa: N801 - read as a word: `with within(5):`
    """Cancel what is awaited inside `with within(seconds):` at the time limit, and raise TimeoutError, as
    `asyncio.timeout`.
    """

    __slots__ = ("_cancelling", "_expired", "_task", "_watch", "at")

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds
        self._expired = False

    def __enter__(self) -> None:
        watch = _WATCHES.get(threading.get_ident())
        # Passing the loop avoids looking it up, which costs a system call before Python 3.12.
        task = None if watch is None else asyncio.current_task(watch.loop)
        if watch is None or task is None:
            watch, task = _watch_here()
        self._watch = watch
        self._task = task
        self._cancelling = task.cancelling()
        watch.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.discard(self)
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel what is awaited inside now."""
        if not self._expired:
            self._expired = True
            self._task.cancel()


class _Watch(set[within]):
    """The open time limits of one event loop, checked every `TICK_S` until none is left."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        if not self:
            if _WATCHES.get(threading.get_ident()) is self:
                del _WATCHES[threading.get_ident()]
            return
        self.loop.call_later(TICK_S, self._tick)
        now = time.monotonic()
        for bound in [one for one in self if one.at <= now]:
            self.discard(bound)
            bound.expire()


_WATCHES: dict[int, _Watch] = {}  # by thread: a thread runs one loop at a time


def _watch_here() -> "tuple[_Watch, asyncio.Task[object]]":
    """Return a new watch of the loop that runs in this thread, and the current task. Raises RuntimeError outside a
    task.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a time limit needs a running task that it can cancel")
    watch = _WATCHES[threading.get_ident()] = _Watch(task.get_loop())
    return watch, task
