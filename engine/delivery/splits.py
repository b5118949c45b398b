"""Which domains are split over several shards, as every process knows it, and how that changes.

A split is a row in Postgres; who accepts mail reads it through a stamped cache, so that new mail goes its new way
within half a second of the change. Mail that waits already is brought there by the owners of its shards
(mta.outbound.resharding). A row in another shard than the split says is no error: who owns that shard delivers it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum

import asyncpg
from msgspec import Struct

from engine.delivery.partition import parts_of
from engine.store.caches import Cache, bump
from engine.store.queries import Conn, Queries, Source

KIND = "splits"  # of the stamp

_SQL = Queries.beside(__file__, "splits.sql")


class Whose(StrEnum):
    """On whose word something stands."""

    OPERATOR = "operator"
    RULE = "rule"


class Split(Struct, frozen=True):
    """What was said about a domain. One part: its mail lies in its own shard, and no rule shall change that."""

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
    """The splits as one process knows them; `cache` is for its Stamps."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[str, Mapping[str, int]] = Cache(KIND, self._load)

    async def now(self) -> Mapping[str, int]:
        """Parts by domain, of the domains that are split. Raises DatabaseUnavailable."""
        return await self.cache.get(KIND)

    async def _load(self, _: str) -> Mapping[str, int]:
        return await read(self._pool)


async def read(source: Source) -> Mapping[str, int]:
    """The same of this moment."""
    return {one.domain: one.parts for one in await SPLIT_DOMAINS.fetch(source)}


async def change(connection: Conn, domain: str, parts: int, *, shards: int, whose: Whose, why: str) -> bool:
    """Let `domain` have so many parts, from now on for new mail and soon for what waits; False when it has them
    already, and only the reason is new. Call it within a transaction."""
    before = await _locked(connection, domain)
    await _WRITE.execute(connection, domain, parts, whose.value, why)
    return await _changed(connection, domain, before, parts, shards)


async def forget(connection: Conn, domain: str, *, shards: int) -> bool:
    """One part, and the rule may split it again; False when nothing moves. Call it within a transaction."""
    before = await _locked(connection, domain)
    await _FORGET.execute(connection, domain)
    return await _changed(connection, domain, before, 1, shards)


async def _locked(connection: Conn, domain: str) -> int:
    await _LOCK.execute(connection)
    known = await ONE.first(connection, domain)
    return 1 if known is None else known.parts


async def _changed(connection: Conn, domain: str, before: int, parts: int, shards: int) -> bool:
    """Rows lie where they were; those that are made by the old split in the next moments will lie there too."""
    if before == parts:
        return False
    stale: Collection[int] = parts_of(domain, shards, before)
    await _BEGIN.execute(connection, domain, list(stale))
    await bump(connection, KIND)
    return True
