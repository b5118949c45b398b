"""Waits that service time ends. In live mode they are plain waits.

In local mode the service time can jump. A jump is a step in the clock file (engine.store.shared_clock): each process
that has called `watch` notices it within `POLL_S`, wakes the waits that it ends, and writes what it is doing, so that
the process that moves the clock can wait for that.
"""

import asyncio
import math
import time
from asyncio import Task
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from engine.base import clock
from engine.base.clock import Calls
from engine.base.settings import Settings
from engine.store.pace import PACE
from engine.store.shared_clock import SharedClock

POLL_S: Final = 0.05  # costs 0.03% of a core
QUIET_POLL_S: Final = 0.5  # in a quiet service of the small profile
BUSY_POLL_S: Final = 0.002
BUSY_FOR_S: Final = 1.0  # after a step others are likely to follow


class Wake(Enum):
    """The events that may end a wait before its time."""

    QUEUE = auto()  # each call of the jobs that take from a queue
    SELDOM = auto()  # a call of all jobs, if service time has passed the end
    APPOINTMENT = auto()  # that service time has passed the end: the clock never jumps over an appointment


class _Wait:
    """A task that waits, until the service time `due` (of clock.monotonic)."""

    __slots__ = ("due", "event", "wake")

    def __init__(self, due: float, wake: Wake) -> None:
        self.due = due
        self.wake = wake
        self.event = asyncio.Event()


class Follower:
    """The waits of one process, and its slot in the clock file; lives as long as the process."""

    def __init__(self, shared: SharedClock) -> None:
        self.shared = shared
        self._seen = shared.step
        self._tasks: WeakSet[Task[Any]] = WeakSet()  # that have waited here: at work unless they wait
        self._waits: dict[Task[Any], _Wait] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._watching = asyncio.Lock()
        self._watched = False
        self._stepped_at = -math.inf  # of time.monotonic

    def on_step(self, callback: Callable[[], None]) -> None:
        """Call `callback` with every step."""
        self._callbacks.append(callback)

    def is_waiting(self, task: Task[Any]) -> bool:
        """Return True while a task waits here."""
        return task in self._waits

    async def sleep(self, seconds: float, wake: Wake, quiet_s: float) -> None:
        """Wait for `seconds` of service time (see `sleep`), or until a step ends the wait."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        wait_s = PACE.interval(seconds, quiet_s)
        wait = self._waits[task] = _Wait(clock.monotonic() + wait_s, wake)
        if wait_s > seconds:
            PACE.wake(wait.event)
        self._write()
        try:
            while (left_s := wait.due - clock.monotonic()) > 0 and not wait.event.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await wait.event.wait()
        finally:
            self._waits.pop(task, None)
            self._write()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Count this task as waiting within the block, in which it waits for something else than time."""
        task = asyncio.current_task()
        assert task is not None
        self._waits[task] = _Wait(math.inf, Wake.SELDOM)
        self._write()
        try:
            yield
        finally:
            self._waits.pop(task, None)
            self._write()

    async def watch(self) -> None:
        """Notice steps, until cancelled. Of several calls in a process one watches, and the others stand by."""
        async with self._watching:
            self.shared.take_slot()
            self._watched = True
            try:
                await self._watch()
            finally:
                self._watched = False
                self.shared.leave_slot()

    def moves(self) -> bool:
        """Return True if the clock is likely to move, and to wait for what this process does."""
        return time.monotonic() < self._stepped_at + BUSY_FOR_S

    async def _watch(self) -> None:
        while True:
            if (step := self.shared.step) != self._seen:
                queues, every = (self.shared.called(whom) > self._seen for whom in (Calls.QUEUES, Calls.ALL))
                self._seen = step
                self._stepped_at = time.monotonic()
                PACE.touch()
                self._wake(queues=queues, every=every)
                self._write()
            await PACE.wait(BUSY_POLL_S if self.moves() else POLL_S, QUIET_POLL_S)

    def _wake(self, *, queues: bool, every: bool) -> None:
        now = clock.monotonic()
        for task, wait in list(self._waits.items()):
            over = wait.due <= now and (every or wait.wake is Wake.APPOINTMENT)
            if over or (queues and wait.wake is Wake.QUEUE):
                wait.event.set()
                del self._waits[task]  # from now on it is at work
        for callback in self._callbacks:
            callback()

    def _write(self) -> None:
        if not self._watched:
            return
        working = sum(not task.done() and task not in self._waits for task in self._tasks)
        due = min((wait.due for wait in self._waits.values() if wait.wake is Wake.APPOINTMENT), default=None)
        due_us = 0 if due is None else clock.microseconds(clock.now()) + round((due - clock.monotonic()) * 1e6)
        self.shared.write(self._seen, busy=working, due_us=due_us)


_follower: Follower | None = None


def join(settings: Settings) -> Follower | None:
    """Follow the clock of the installation in this process, in local mode; None in live mode. Called once, at the start
    of a process, before it opens connections to the database."""
    if settings.delivery != "local":
        return None
    return join_at(settings.state)


def join_at(state: Path) -> Follower:
    """Follow the clock file in this state folder; for processes of local mode that have no other settings."""
    global _follower  # noqa: PLW0603 - one clock in a process
    if _follower is None:
        _follower = Follower(SharedClock(state.expanduser().absolute()))
        clock.follow(_follower.shared.ahead_us)
    return _follower


def follower() -> Follower | None:
    """Return what follows the clock in this process; None if it can't move."""
    return _follower


def leave() -> None:
    """Follow the clock no longer."""
    global _follower  # noqa: PLW0603 - one clock in a process
    _follower = None
    clock.follow(None)


async def sleep(seconds: float, wake: Wake, quiet_s: float = 0.0) -> None:
    """Wait for `seconds` of service time; in a quiet service for `quiet_s`, if that is longer (engine.store.pace)."""
    if _follower is None:
        await PACE.wait(seconds, quiet_s)
    else:
        await _follower.sleep(seconds, wake, quiet_s)


def moves() -> bool:
    """Return True if the clock is likely to move, and to wait for what this process does; never in live mode."""
    return _follower is not None and _follower.moves()


def resting() -> AbstractContextManager[None]:
    """Return a block in which this task waits for something else than time, such as for work."""
    return nullcontext() if _follower is None else _follower.resting()


def on_step(callback: Callable[[], None]) -> None:
    """Call `callback` whenever due work may have to be looked for at once; never in live mode."""
    if _follower is not None:
        _follower.on_step(callback)


async def watch() -> None:
    """Notice steps, until cancelled; returns at once in live mode."""
    if _follower is not None:
        await _follower.watch()
