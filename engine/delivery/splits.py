"""Split domains: busy recipient domains whose mail is spread over several shards.

A split is a row in Postgres. Acceptance reads it through a stamped cache, so that new mail follows a change within half
a second; the owners of the old shards move waiting mail (mta.outbound.resharding). A row in another shard than the
split names is valid: the owner of that shard delivers it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum

import asyncpg
from msgspec import Struct

from engine.delivery.partition import parts_of
from engine.store.caches import Cache, bump
from engine.store.own_schema import LOCK_SCHEMA
from engine.store.queries import Conn, Queries, Source

KIND = "splits"  # the stamp's name

_SQL = Queries.beside(__file__, "splits.sql", lock_schema=LOCK_SCHEMA)


class SplitAuthor(StrEnum):
    """The author of a split or of a shard assignment: the operator, or the rule that follows the load."""

    OPERATOR = "operator"
    RULE = "rule"


class Split(Struct, frozen=True):
    """The stored split of a domain. With one part, its mail stays in its own shard and the rule must not split it."""

    domain: str
    parts: int
    whose: str
    why: str
    changed_at: datetime


class _Parts(Struct, frozen=True):
    domain: str
    parts: int


SPLIT_DOMAINS = _SQL.rows("split_domains", _Parts)
ALL = _SQL.rows("all_splits", Split)
ONE = _SQL.rows("one_split", Split)
_LOCK = _SQL.command("lock_splits")
_WRITE = _SQL.command("write_split")
_FORGET = _SQL.command("forget_split")
_BEGIN = _SQL.command("begin_rehoming")


class Splits:
    """The splits as one process knows them; `cache` belongs to the process's Stamps."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[str, Mapping[str, int]] = Cache(KIND, self._load)

    async def now(self) -> Mapping[str, int]:
        """Return the number of parts of each split domain. Raises DatabaseUnavailable."""
        return await self.cache.get(KIND)

    async def _load(self, _: str) -> Mapping[str, int]:
        return await read(self._pool)


async def read(source: Source) -> Mapping[str, int]:
    """Read the number of parts of each split domain from the database."""
    return {one.domain: one.parts for one in await SPLIT_DOMAINS.fetch(source)}


async def change(connection: Conn, domain: str, parts: int, *, shards: int, whose: SplitAuthor, why: str) -> bool:
    """Set the number of parts of `domain`, within a transaction; return False if only the reason changed.

    New mail follows at once; waiting mail is moved soon afterwards.
    """
    before = await _locked(connection, domain)
    await _WRITE.execute(connection, domain, parts, whose.value, why)
    return await _changed(connection, domain, before, parts, shards)


async def forget(connection: Conn, domain: str, *, shards: int) -> bool:
    """Delete the split of `domain`, within a transaction, so that the rule may split it again; return False if
    nothing moves.
    """
    before = await _locked(connection, domain)
    await _FORGET.execute(connection, domain)
    return await _changed(connection, domain, before, 1, shards)


async def _locked(connection: Conn, domain: str) -> int:
    await _LOCK.execute(connection)
    known = await ONE.first(connection, domain)
    return 1 if known is None else known.parts


async def _changed(connection: Conn, domain: str, before: int, parts: int, shards: int) -> bool:
    """Announce a changed split; also mark the old shards, since mail accepted in the next moments may still go
    there.
    """
    if before == parts:
        return False
    stale: Collection[int] = parts_of(domain, shards, before)
    await _BEGIN.execute(connection, domain, list(stale))
    await bump(connection, KIND)
    return True
