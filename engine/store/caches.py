"""Cache small tables in each process; a change anywhere empties the caches within half a second.

A change increments the version of its kind in the table `stamps` within its own transaction; every process reads all
stamps twice a second in one small query. The stamps are in PostgreSQL, not in Redis, so that revoking a key works while
Redis is unavailable (ops/decisions/0003-cache-stamps-in-postgres.md).
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import asyncpg
import structlog

from engine.store.database_errors import DatabaseUnavailable
from engine.store.queries import Conn

POLL_S = 0.4  # with the query, well under the promised second
_MAX_ENTRIES = 50_000

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_log = structlog.get_logger("caches")
_caches_here: dict[str, WeakSet["Cache[Any, Any]"]] = defaultdict(WeakSet)  # the caches of this process by kind


class Cache(Generic[Key, Value]):
    """Values of one kind by key, loaded on demand; concurrent loads of a key share one query."""

    def __init__(self, kind: str, load: Callable[[Key], Awaitable[Value]]) -> None:
        self.kind = kind
        self._load = load
        self._values: dict[Key, Value] = {}
        self._loading: dict[Key, asyncio.Task[Value]] = {}
        self._generation = 0
        _caches_here[kind].add(self)

    async def get(self, key: Key) -> Value:
        """Return the cached value, or load it. Errors of loading are raised and not cached."""
        try:
            return self._values[key]
        except KeyError:
            return await self._fetch(key)

    def peek(self, key: Key) -> Value | None:
        """Return the value if it is cached, else None."""
        return self._values.get(key)

    async def anew(self, key: Key) -> Value:
        """Load the current value, whatever is cached, for callers that may refuse a request because of a stale one."""
        generation = self._generation
        value = await self._load(key)
        if generation == self._generation and key in self._values:
            self._values[key] = value
        return value

    def clear(self) -> None:
        """Remove all entries; loads in progress return their value to their callers, but it is not cached."""
        self._generation += 1
        self._values.clear()
        self._loading.clear()

    async def _fetch(self, key: Key) -> Value:
        task = self._loading.get(key)
        if task is None:
            task = asyncio.ensure_future(self._load_and_keep(key, self._generation))
            self._loading[key] = task
        return await asyncio.shield(task)

    async def _load_and_keep(self, key: Key, generation: int) -> Value:
        try:
            value = await self._load(key)
        finally:
            if generation == self._generation:
                self._loading.pop(key, None)
        if generation == self._generation:
            if len(self._values) >= _MAX_ENTRIES:
                self._values.pop(next(iter(self._values)))  # the oldest: a flood of unknown keys must not use up memory
            self._values[key] = value
        return value


class Stamps:
    """The versions last read from `stamps`; clears each cache whose version has changed."""

    def __init__(self, pool: asyncpg.Pool, caches: Sequence[Cache[Any, Any]]) -> None:
        self._pool = pool
        self._caches = caches
        self._seen: dict[str, int] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                await self.check()
            except DatabaseUnavailable as error:
                _log.warning("cache stamps not read", error=str(error))
            await asyncio.sleep(POLL_S)

    async def check(self) -> None:
        """Read the stamps once and clear the caches that have changed."""
        rows = await self._pool.fetch("SELECT kind, version FROM stamps", timeout=5)
        now = {row["kind"]: row["version"] for row in rows}
        for cache in self._caches:
            if now.get(cache.kind) != self._seen.get(cache.kind):
                cache.clear()
        self._seen = now


@asynccontextmanager
async def change(pool: asyncpg.Pool, kind: str) -> AsyncIterator[Conn]:
    """Run a transaction that changes rows which caches of `kind` hold, and increment their stamp.

    The caches of this process are cleared after the commit, so that the caller's next request sees the change.
    """
    async with pool.acquire() as connection, connection.transaction():
        yield connection
        await bump(connection, kind)
    clear_here(kind)


def clear_here(kind: str) -> None:
    """Clear this process's caches of `kind`; call it after the commit. Other processes follow within half a second."""
    for cache in _caches_here[kind]:
        cache.clear()


async def bump(connection: Conn, kind: str) -> None:
    """Increment the stamp of `kind` in the transaction of a change, so that every process clears its caches."""
    await connection.execute(
        "INSERT INTO stamps (kind, version) VALUES ($1, 1) "
        "ON CONFLICT (kind) DO UPDATE SET version = stamps.version + 1",
        kind,
    )
