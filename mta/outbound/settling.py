"""Settling beside the loop: a Settler in a thread with an event loop and sessions of its own.

A busy process turns its loop every few dozen milliseconds, and a settling transaction needs several turns in which it
keeps account heads locked from everybody else. In a thread it waits for Postgres alone; the thread needs the
interpreter for some 0.05 ms a message, and gets it whenever the loop signs or writes to a socket.
"""

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Callable
from uuid import UUID

import asyncpg
import uvloop

from engine.flows.settle import Attempt, Settler
from engine.store.postgres import close_pool, open_pool

START_S, END_S = 30.0, 10.0
GATHER_S = 0.06  # between looks under load: a transaction costs 2 ms of CPU in all, whatever its size
SESSIONS = 2  # one settles; the other is for the moment in which that one is replaced


class SettlingThread:
    """Settles for one process. Made by `start`, used by the loop that made it, ended by `close`."""

    @classmethod
    async def start(
        cls, database_url: str, name: str, member: Callable[[], UUID], *, on_flush: Callable[[int, float], None]
    ) -> "SettlingThread":
        """Returns when the thread can settle; raises one of AWAY when Postgres takes no connection."""
        self = cls()
        self._thread.start()
        try:
            async with asyncio.timeout(START_S):
                self._pool, self._settler = await asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(self._open(database_url, name, member, on_flush), self._inner)
                )
        except BaseException:
            self._inner.call_soon_threadsafe(self._inner.stop)
            raise
        return self

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._inner = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="settling", daemon=True)
        self._pool: asyncpg.Pool
        self._settler: Settler
        self._open_ones: set[asyncio.Future[bool]] = set()
        # Appending and taking from the left are atomic; a flag that stands means that the other side will look again.
        self._handed: deque[tuple[Attempt, asyncio.Future[bool]]] = deque()
        self._called = False
        self._done: deque[tuple[asyncio.Future[bool], asyncio.Future[bool]]] = deque()
        self._told = False

    def settle(self, attempt: Attempt) -> "asyncio.Future[bool]":
        """Resolves as `Settler.settle`, in the loop of the caller."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._open_ones.add(future)
        self._handed.append((attempt, future))
        if not self._called:
            self._called = True
            self._inner.call_soon_threadsafe(self._take)
        return future

    async def idle(self) -> None:
        """Wait until everything handed over has been answered."""
        while self._open_ones:
            await asyncio.wait(list(self._open_ones))

    async def close(self) -> None:
        """End the thread; what it has not settled by now is left to whoever gets the shards."""
        if not self._thread.is_alive():
            return
        ended = asyncio.run_coroutine_threadsafe(close_pool(self._pool), self._inner)
        await asyncio.wait((asyncio.wrap_future(ended),), timeout=END_S)
        self._inner.call_soon_threadsafe(self._inner.stop)
        await asyncio.to_thread(self._thread.join, END_S)

    # -- in the loop ---------------------------------------------------------------------------

    def _answer(self) -> None:
        self._told = False
        while self._done:
            future, found = self._done.popleft()
            self._open_ones.discard(future)
            if future.cancelled():
                continue
            if found.cancelled():
                future.cancel()
            elif (error := found.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(found.result())

    # -- in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._inner)
        try:
            self._inner.run_forever()
        finally:
            self._inner.close()

    async def _open(
        self, database_url: str, name: str, member: Callable[[], UUID], on_flush: Callable[[int, float], None]
    ) -> tuple[asyncpg.Pool, Settler]:
        pool = await open_pool(database_url, name=f"{name} settling", smallest=1, largest=SESSIONS)
        return pool, Settler(pool, member, on_flush=on_flush)

    def _take(self) -> None:
        """Gather what came; while anything does, look again unasked: each call costs both sides the interpreter."""
        if self._handed:
            self._inner.call_later(GATHER_S, self._take)
        else:
            self._called = False
        while self._handed:
            attempt, future = self._handed.popleft()
            found = self._settler.settle(attempt)
            found.add_done_callback(functools.partial(self._settled, future))

    def _settled(self, future: "asyncio.Future[bool]", found: "asyncio.Future[bool]") -> None:
        self._done.append((future, found))
        if not self._told:
            self._told = True
            self._loop.call_soon_threadsafe(self._answer)
