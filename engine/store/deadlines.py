"""Bounds of time for what mostly takes milliseconds: one timer a loop watches all of them.

A timer of its own costs a request about 5 µs each time, and a request stands under five bounds. Here a bound costs
less than 1 µs, and ends up to `TICK_S` late: for seconds that is near enough.
"""

import asyncio
import threading
import time
from types import TracebackType
from typing import Final

TICK_S: Final = 0.1


class within:  # noqa: N801 - read as a word: `with within(5):`
    """`with within(seconds):` ends what is awaited inside, and raises TimeoutError, as `asyncio.timeout` does."""

    __slots__ = ("_cancelling", "_expired", "_task", "_watch", "at")

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds
        self._expired = False

    def __enter__(self) -> None:
        watch = _WATCHES.get(threading.get_ident())
        # To be told the loop saves asking for it, which costs a system call until Python 3.12.
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
        """End what is awaited inside now."""
        if not self._expired:
            self._expired = True
            self._task.cancel()


class _Watch(set[within]):
    """The bounds that are open on one loop; looked through until a tick finds none."""

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


_WATCHES: dict[int, _Watch] = {}  # by thread: a thread turns one loop at a time


def _watch_here() -> "tuple[_Watch, asyncio.Task[object]]":
    """A fresh watch over the loop that turns in this thread; raises RuntimeError outside a task."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a bound of time needs a task that it can end")
    watch = _WATCHES[threading.get_ident()] = _Watch(task.get_loop())
    return watch, task
