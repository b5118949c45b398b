"""Settles in a thread with an event loop and database sessions of its own.

A busy process turns its event loop every few dozen milliseconds, and a settling transaction needs several turns in
which it keeps account heads locked. In a thread it waits for Postgres alone; the thread needs the interpreter for some
0.05 ms a message, and gets it whenever the event loop signs or writes to a socket.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

import asyncpg
import uvloop

from engine.flows.sending.settle import Attempt, Settler
from engine.store.postgres import close_pool, open_pool

START_S, END_S = 30.0, 10.0
GATHER_S = 0.03  # between transactions under load: each costs 0.6 ms of CPU in all, whatever its size
MAX_ATTEMPTS = 128  # of one transaction; with so many waiting the next one follows at once
SESSIONS = 2  # one settles; the other covers its replacement


class SettlingThread:
    """The settling of one process. Made by `start`, used by the event loop that made it, ended by `close`."""

    @classmethod
    async def start(
        cls, database_url: str, name: str, member: Callable[[], UUID], *, on_flush: Callable[[int, float], None]
    ) -> "SettlingThread":
        """Return once the thread can settle; raise DatabaseUnavailable if Postgres takes no connection."""
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
        # deque.append and popleft are atomic; a set flag means that the other side will look again.
        self._handed: deque[tuple[Attempt, asyncio.Future[bool]]] = deque()
        self._called = False
        self._called_for = asyncio.Event()  # of the thread's loop
        self._done: deque[tuple[list[asyncio.Future[bool]], Sequence[bool | BaseException]]] = deque()
        self._told = False
        self._work: asyncio.Task[None]

    def settle(self, attempt: Attempt) -> "asyncio.Future[bool]":
        """Hand an attempt over; the future resolves as that of `Settler.settle`, in the event loop of the caller."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._open_ones.add(future)
        self._handed.append((attempt, future))
        if not self._called:
            self._called = True
            self._inner.call_soon_threadsafe(self._called_for.set)
        return future

    async def idle(self) -> None:
        """Wait until all attempts handed over have been answered."""
        while self._open_ones:
            await asyncio.wait(list(self._open_ones))

    async def close(self) -> None:
        """End the thread; attempts that it has not settled by then are left to the next owners of the shards."""
        if not self._thread.is_alive():
            return
        ended = asyncio.run_coroutine_threadsafe(self._end(), self._inner)
        await asyncio.wait((asyncio.wrap_future(ended),), timeout=END_S)
        self._inner.call_soon_threadsafe(self._inner.stop)
        await asyncio.to_thread(self._thread.join, END_S)

    # -- in the loop ---------------------------------------------------------------------------

    def _answer(self) -> None:
        self._told = False
        while self._done:
            futures, results = self._done.popleft()
            for future, result in zip(futures, results, strict=True):
                self._open_ones.discard(future)
                if future.done():
                    continue
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)

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
        settler = Settler(pool, member, on_flush=on_flush)
        self._work = asyncio.create_task(self._settle(settler))
        return pool, settler

    async def _end(self) -> None:
        self._work.cancel()
        await asyncio.wait((self._work,), timeout=END_S)
        await close_pool(self._pool)

    async def _settle(self, settler: Settler) -> None:
        """Settle at once what comes after a pause, else what has gathered, one transaction after the other. While
        attempts keep coming the thread needs no wake-up: each costs both sides the interpreter."""
        while True:
            if not self._handed:
                self._called = False
                if not self._handed:  # else an attempt came in between, without a call
                    await self._called_for.wait()
            self._called = True
            self._called_for.clear()
            began = self._inner.time()
            attempts, futures = self._taken()
            if attempts:
                await self._settle_set(settler, attempts, futures)
            left_s = began + GATHER_S - self._inner.time()
            if left_s > 0 and len(self._handed) < MAX_ATTEMPTS:
                await asyncio.sleep(left_s)

    def _taken(self) -> tuple[list[Attempt], list["asyncio.Future[bool]"]]:
        attempts: list[Attempt] = []
        futures: list[asyncio.Future[bool]] = []
        while self._handed and len(attempts) < MAX_ATTEMPTS:
            attempt, future = self._handed.popleft()
            attempts.append(attempt)
            futures.append(future)
        return attempts, futures

    async def _settle_set(
        self, settler: Settler, attempts: list[Attempt], futures: list["asyncio.Future[bool]"]
    ) -> None:
        results: Sequence[bool | BaseException]
        try:
            results = await settler.settle_set(attempts)
        except Exception as error:  # noqa: BLE001 - process loop: the error is passed to the callers
            results = [error] * len(attempts)
        self._done.append((futures, results))
        if not self._told:
            self._told = True
            self._loop.call_soon_threadsafe(self._answer)
