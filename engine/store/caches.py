"""Per-process caches of small tables, emptied within half a second of a change anywhere.

A change adds one to its kind's row in `stamps` within its own transaction; every process reads all stamps twice
a second in one tiny query. Postgres carries the stamps, not Redis, so that a revocation takes effect while
Redis is away (ops/decisions/0003-cache-stamps-in-postgres.md).
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

POLL_S = 0.4  # with the query itself well under the promised second
_MAX_ENTRIES = 50_000

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_log = structlog.get_logger("caches")
_caches_here: dict[str, WeakSet["Cache[Any, Any]"]] = defaultdict(WeakSet)  # this process's caches by kind


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
        """The value, from memory or loaded. Errors of the load are the caller's and are not kept."""
        try:
            return self._values[key]
        except KeyError:
            return await self._fetch(key)

    def peek(self, key: Key) -> Value | None:
        """The value if it is in memory."""
        return self._values.get(key)

    async def anew(self, key: Key) -> Value:
        """The value as it stands now, whatever memory says: for who is about to refuse over what may be new."""
        generation = self._generation
        value = await self._load(key)
        if generation == self._generation and key in self._values:
            self._values[key] = value
        return value

    def clear(self) -> None:
        """Forget everything; loads in flight deliver to their callers but are not kept."""
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
                self._values.pop(next(iter(self._values)))  # the oldest: a flood of keys costs the cache, not everybody
            self._values[key] = value
        return value


class Stamps:
    """Watches the stamps and clears the caches whose kind has moved."""

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
                _log.warning("stamps unreadable", error=str(error))
            await asyncio.sleep(POLL_S)

    async def check(self) -> None:
        """Read the stamps once and clear what has changed."""
        rows = await self._pool.fetch("SELECT kind, version FROM stamps", timeout=5)
        now = {row["kind"]: row["version"] for row in rows}
        for cache in self._caches:
            if now.get(cache.kind) != self._seen.get(cache.kind):
                cache.clear()
        self._seen = now


@asynccontextmanager
async def change(pool: asyncpg.Pool, kind: str) -> AsyncIterator[Conn]:
    """Run a transaction that changes what caches of `kind` hold: their stamp moves with it.

    The caches of this process are cleared after the commit, so that the caller's next request sees the change.
    """
    async with pool.acquire() as connection, connection.transaction():
        yield connection
        await bump(connection, kind)
    clear_here(kind)


def clear_here(kind: str) -> None:
    """Clear this process's caches of `kind`; call it after the commit. Other processes follow by the stamp."""
    for cache in _caches_here[kind]:
        cache.clear()


async def bump(connection: Conn, kind: str) -> None:
    """Move the stamp of `kind` within the transaction of a change, so that every process clears its caches."""
    await connection.execute(
        "INSERT INTO stamps (kind, version) VALUES ($1, 1) "
        "ON CONFLICT (kind) DO UPDATE SET version = stamps.version + 1",
        kind,
    )
