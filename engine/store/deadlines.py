"""Bounds of time for what mostly takes milliseconds: one timer a loop watches all of them.

A timer of its own costs a request about 5 µs each time, and a request stands under five bounds. Here a bound costs
less than 1 µs, and ends up to `TICK_S` late: for seconds that is near enough.
"""

import asyncio
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
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a bound of time needs a task that it can end")
        self._task = task
        self._cancelling = task.cancelling()
        watch = _WATCHES.get(task.get_loop())
        self._watch = _watch_over(task.get_loop()) if watch is None else watch
        self._watch.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.discard(self)
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Its time is over."""
        self._expired = True
        self._task.cancel()


class _Watch(set[within]):
    """The bounds that are open on one loop; looked through until a tick finds none."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        if not self:
            del _WATCHES[self._loop]
            return
        self._loop.call_later(TICK_S, self._tick)
        now = time.monotonic()
        for bound in [one for one in self if one.at <= now]:
            self.discard(bound)
            bound.expire()


_WATCHES: dict[asyncio.AbstractEventLoop, _Watch] = {}


def _watch_over(loop: asyncio.AbstractEventLoop) -> _Watch:
    for closed in [one for one in _WATCHES if one.is_closed()]:
        del _WATCHES[closed]
    watch = _WATCHES[loop] = _Watch(loop)
    return watch
