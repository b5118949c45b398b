"""Cache small tables in each process; a change anywhere empties the caches within half a second.

A change increments the version of its kind in the table `stamps` within its own transaction; every process reads all
stamps twice a second in one small query. A change that names an account removes the entries of that account alone: with
a thousand domains checked a minute, no process keeps reloading the keys of all others. The stamps are in PostgreSQL,
not in Redis, so that revoking a key works while Redis is unavailable (ops/decisions/0002).
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

import asyncpg
import structlog

from engine.store.database_errors import DatabaseUnavailable
from engine.store.pace import PACE
from engine.store.queries import Conn

POLL_S = 0.4  # with the query, well under the promised second
QUIET_POLL_S = 1.5  # in a quiet service of the small profile
KEPT_CHANGES = 10_000  # versions of a kind whose account is kept; a process that missed more clears its caches
_MAX_ENTRIES = 50_000

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_log = structlog.get_logger("caches")
_polling: "WeakKeyDictionary[asyncpg.Pool, Stamps]" = WeakKeyDictionary()
_caches_here: dict[str, WeakSet["Cache[Any, Any]"]] = defaultdict(WeakSet)  # the caches of this process by kind


class Cache(Generic[Key, Value]):
    """Values of one kind by key, loaded on demand; concurrent loads of a key share one query.

    `by_account`: each key is the id of an account or a tuple that begins with it, so that `drop` finds the entries of
    an account; other caches are cleared instead.
    """

    def __init__(self, kind: str, load: Callable[[Key], Awaitable[Value]], *, by_account: bool = False) -> None:
        self.kind = kind
        self._by_account = by_account
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

    def drop(self, accounts: Collection[UUID]) -> None:
        """Remove the entries of these accounts; as with `clear`, loads in progress are not cached."""
        if not self._by_account:
            self.clear()
            return
        self._generation += 1
        self._loading.clear()
        for key in [one for one in self._values if _account_of(one) in accounts]:
            del self._values[key]

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
    """The versions last read from `stamps`; clears the caches whose version has changed, or drops entries of theirs."""

    def __init__(self, pool: asyncpg.Pool, caches: Sequence[Cache[Any, Any]]) -> None:
        self._pool = pool
        self._caches = caches
        self._seen: dict[str, int] = {}
        self.ended = asyncio.Event()

    async def run(self) -> None:
        """Poll until cancelled; those of one pool poll together."""
        while (first := _polling.get(self._pool)) is not None:
            first.add(self._caches)
            await first.ended.wait()
        _polling[self._pool] = self
        try:
            await self._poll()
        finally:
            del _polling[self._pool]
            self.ended.set()

    def add(self, caches: Sequence[Cache[Any, Any]]) -> None:
        """Follow more caches, which are empty now."""
        self._caches = [*self._caches, *caches]

    async def _poll(self) -> None:
        while True:
            try:
                await self.check()
            except DatabaseUnavailable as error:
                _log.warning("cache stamps not read", error=str(error))
            await PACE.wait(POLL_S, QUIET_POLL_S)

    async def check(self) -> None:
        """Read the stamps once and clear the caches that have changed."""
        rows = await self._pool.fetch("SELECT kind, version FROM stamps", timeout=5)
        now = {row["kind"]: row["version"] for row in rows}
        kinds = {cache.kind for cache in self._caches}
        changed = {kind for kind in kinds if now.get(kind) != self._seen.get(kind)}
        concerned = await self._concerned(changed, now) if changed else {}
        for cache in self._caches:
            if cache.kind in concerned:
                cache.drop(concerned[cache.kind])
            elif cache.kind in changed:
                cache.clear()
        self._seen = now

    async def _concerned(self, kinds: Collection[str], now: Mapping[str, int]) -> dict[str, set[UUID]]:
        """Return the accounts that the changes of these kinds concern; a kind is left out if that is not known of all.

        `now` has the versions up to which to look: later ones belong to the next round.
        """
        known = [kind for kind in kinds if kind in self._seen and kind in now]
        spans = [(kind, self._seen[kind], now[kind]) for kind in known]
        if not spans:
            return {}
        rows = await self._pool.fetch(_CHANGES, *map(list, zip(*spans, strict=True)), timeout=5)
        found: dict[str, list[UUID | None]] = defaultdict(list)
        for row in rows:
            found[row["kind"]].append(row["account_id"])
        whole = [kind for kind, seen, then in spans if len(found[kind]) == then - seen and None not in found[kind]]
        return {kind: {one for one in found[kind] if one is not None} for kind in whole}


@asynccontextmanager
async def change(pool: asyncpg.Pool, kind: str, account: UUID | None = None) -> AsyncIterator[Conn]:
    """Run a transaction that changes rows which caches of `kind` hold, and increment their stamp.

    `account`: the only one that the change concerns. The caches of this process follow after the commit, so that the
    caller's next request sees the change.
    """
    async with pool.acquire() as connection, connection.transaction():
        yield connection
        await bump(connection, kind, account)
    clear_here(kind, account)


def clear_here(kind: str, account: UUID | None = None) -> None:
    """Clear this process's caches of `kind`, or their entries of `account`; call it after the commit.

    Other processes follow within half a second.
    """
    for cache in _caches_here[kind]:
        if account is None:
            cache.clear()
        else:
            cache.drop({account})


async def bump(connection: Conn, kind: str, account: UUID | None = None) -> None:
    """Increment the stamp of `kind` in the transaction of a change, so that every process follows it.

    `account`: the only one that the change concerns; None: its caches are cleared.
    """
    await connection.execute(_BUMP, kind, account, KEPT_CHANGES)


def _account_of(key: object) -> object:
    return key[0] if isinstance(key, tuple) else key


_BUMP = """
WITH bumped AS (
    INSERT INTO stamps (kind, version) VALUES ($1, 1)
    ON CONFLICT (kind) DO UPDATE SET version = stamps.version + 1
    RETURNING version
), forgotten AS (
    DELETE FROM cache_changes c USING bumped WHERE c.kind = $1 AND c.version <= bumped.version - $3::bigint
)
INSERT INTO cache_changes (kind, version, account_id) SELECT $1, version, $2 FROM bumped
"""
_CHANGES = """
SELECT c.kind, c.account_id
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS span (kind, seen, until)
JOIN cache_changes c ON c.kind = span.kind AND c.version > span.seen AND c.version <= span.until
"""
