"""Source addresses in Postgres: pools, assignments, warm-up plans and counts, and where an address is refused.

What the operator says is in force everywhere within a second. Counts are exact over all processes: each takes its
messages from a row before it sends them, and gives back what it did not send.
"""

from collections.abc import Collection, Sequence
from datetime import date, datetime
from uuid import UUID

import asyncpg
import msgspec
import structlog
from msgspec import Struct

from engine.delivery.sources import Assignment, Member, Pool, SourceBook, Warmup, book
from engine.store.caches import Cache, bump
from engine.store.queries import Queries, Source, columns

KIND = "sources"  # of the stamp
WAITING = "warm_up"  # the row's reason to wait, and that of its `queued` event; the SQL says so too
MAX_RESTS = 50_000  # read at once
_SQL = Queries.beside(__file__, "sources_store.sql")

_log = structlog.get_logger("sources")


class PoolRow(Struct, frozen=True):
    """A stored pool."""

    name: str
    members: str


class WarmupRow(Struct, frozen=True):
    """A stored plan."""

    ip: str
    started_on: date
    plan: list[int]


class Count(Struct, frozen=True):
    """Messages of a day to a site."""

    site: str
    used: int


class Kind(Struct, frozen=True):
    """What a message is: its stream's id, and how it came (`api`, `smtp`, `broadcast`, `verification`)."""

    id: UUID
    stream: str
    source: str


class Rest(Struct, frozen=True):
    """An address is spared at a site until then, for the nth time in a row; 0: no more."""

    ip: str
    site: str
    until: datetime
    rests: int
    said: str
    changed_at: datetime


class Taken(Struct, frozen=True):
    """One message of a day's allowance."""

    day: date
    ip: str
    site: str


_POOLS = _SQL.rows("read_pools", PoolRow)
_WRITE_POOL = _SQL.command("write_pool")
_DELETE_POOL = _SQL.command("delete_pool")
_ASSIGNMENTS = _SQL.rows("read_assignments", Assignment)
_WRITE_ASSIGNMENT = _SQL.command("write_assignment")
_DELETE_ASSIGNMENT = _SQL.command("delete_assignment")
_WARMUPS = _SQL.rows("read_warmups", WarmupRow)
_WRITE_WARMUP = _SQL.command("write_warmup")
_DELETE_WARMUP = _SQL.command("delete_warmup")
_RESERVE = _SQL.command("reserve")
_GIVE_BACK = _SQL.command("give_back")
_COUNTS = _SQL.rows("read_counts", Count)
_SUMS = _SQL.rows("sum_counts", Count)
_FORGET_COUNTS = _SQL.command("forget_counts")
_KINDS = _SQL.rows("kinds_of_mail", Kind)
_RESTS = _SQL.rows("read_rests", Rest)
_RESTS_OF = _SQL.rows("read_rests_of", Rest)
_WRITE_RESTS = _SQL.command("write_rests")
_END_RESTS = _SQL.command("end_rests")
_FORGET_RESTS = _SQL.command("forget_rests")
_WAKE = _SQL.command("wake_waiting")


class Books:
    """The book as one process holds it; `cache` belongs to the process's Stamps."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[None, SourceBook] = Cache(KIND, self._load)

    async def book(self) -> SourceBook:
        """What is in force. Raises DatabaseUnavailable."""
        return await self.cache.get(None)

    async def _load(self, _: None) -> SourceBook:
        return await read(self._pool)


async def read(source: Source) -> SourceBook:
    """All that the operator has said; a pool that this version can't read is left out and told."""
    pools = []
    for row in await _POOLS.fetch(source):
        try:
            pools.append(Pool(row.name, msgspec.json.decode(row.members, type=tuple[Member, ...])))
        except msgspec.ValidationError as error:
            _log.error("source pool not understood", name=row.name, error=str(error))
    warmups = [Warmup(row.ip, row.started_on, tuple(row.plan)) for row in await _WARMUPS.fetch(source)]
    return book(pools, await _ASSIGNMENTS.fetch(source), warmups)


# -- the operator's word ----------------------------------------------------------------------


async def set_pool(pool: asyncpg.Pool, name: str, members: Sequence[Member]) -> None:
    """A pool has these members and no others."""
    async with pool.acquire() as connection, connection.transaction():
        await _WRITE_POOL.execute(connection, name, msgspec.json.encode(members).decode())
        await bump(connection, KIND)


async def remove_pool(pool: asyncpg.Pool, name: str) -> bool:
    """Forget a pool; False when there is none or something is assigned to it."""
    async with pool.acquire() as connection, connection.transaction():
        gone = await _DELETE_POOL.records(connection, name)
        await bump(connection, KIND)
    return bool(gone)


async def assign(pool: asyncpg.Pool, assignment: Assignment) -> None:
    """Mail of a stream leaves from a pool. Raises ForeignKeyViolation for one that is not there."""
    async with pool.acquire() as connection, connection.transaction():
        await _WRITE_ASSIGNMENT.execute(connection, assignment.stream, assignment.account_id, assignment.pool)
        await bump(connection, KIND)


async def unassign(pool: asyncpg.Pool, stream: str, account: UUID | None) -> bool:
    """Take an assignment back; False when there was none."""
    async with pool.acquire() as connection, connection.transaction():
        gone = await _DELETE_ASSIGNMENT.records(connection, stream, account)
        await bump(connection, KIND)
    return bool(gone)


async def warm_up(pool: asyncpg.Pool, warmup: Warmup) -> None:
    """Warm an address up by this plan."""
    async with pool.acquire() as connection, connection.transaction():
        await _WRITE_WARMUP.execute(connection, warmup.ip, warmup.started_on, list(warmup.plan))
        await bump(connection, KIND)


async def end_warm_up(pool: asyncpg.Pool, ip: str) -> bool:
    """The address is warm; False when it was already."""
    async with pool.acquire() as connection, connection.transaction():
        gone = await _DELETE_WARMUP.records(connection, ip)
        await bump(connection, KIND)
    return bool(gone)


async def wake_waiting(source: Source, spread_s: float) -> int:
    """Whatever waits for warm-up is looked at again within so many seconds; gives the number of deliveries."""
    return len(await _WAKE.records(source, spread_s))


# -- counts -----------------------------------------------------------------------------------


async def reserve(source: Source, one: Taken, wanted: int, allowed: int) -> int:
    """Take up to `wanted` of the `allowed` messages of a day; gives how many there were left to take."""
    found = await _RESERVE.records(source, one.day, one.ip, one.site, wanted, allowed)
    return int(found[0]["granted"])


async def give_back(source: Source, unused: Sequence[tuple[Taken, int]]) -> None:
    """So many messages were taken and not sent."""
    rows = [(one.day, one.ip, one.site, count) for one, count in unused]
    await _GIVE_BACK.execute(source, *columns(rows, 4))


async def counts(source: Source, day: date, ip: str, limit: int) -> list[Count]:
    """What an address has used on a day, by site."""
    return await _COUNTS.fetch(source, day, ip, limit)


async def sums(source: Source, day: date) -> dict[str, int]:
    """What each address has used on a day in all."""
    return {row.site: row.used for row in await _SUMS.fetch(source, day)}


async def kinds(source: Source, messages: Collection[UUID]) -> dict[UUID, Kind]:
    """What these messages are."""
    found = await _KINDS.fetch(source, list(messages), min(messages), max(messages)) if messages else []
    return {row.id: row for row in found}


# -- where an address is spared -----------------------------------------------------------------


async def rests_since(source: Source, since: datetime) -> list[Rest]:
    """What has changed since."""
    return await _RESTS.fetch(source, since, MAX_RESTS)


async def rests_of(source: Source, ip: str, at: datetime, limit: int) -> list[Rest]:
    """Where an address is spared at that moment."""
    return await _RESTS_OF.fetch(source, ip, at, limit)


async def write_rests(source: Source, rests: Sequence[Rest]) -> None:
    """Tell all processes; of two words about the same, the later stands."""
    rows = [(one.ip, one.site, one.until, one.rests, one.said, one.changed_at) for one in rests]
    await _WRITE_RESTS.execute(source, *columns(rows, 6))


async def end_rests(source: Source, ip: str, site: str | None, at: datetime) -> list[str]:
    """An address is spared no more, at a site or anywhere; gives the sites."""
    return [row["site"] for row in await _END_RESTS.records(source, ip, site, at)]


async def forget(source: Source, *, days_before: date, rests_before: datetime) -> None:
    """Drop counts and rests that are of no use any more."""
    await _FORGET_COUNTS.execute(source, days_before)
    await _FORGET_RESTS.execute(source, rests_before)
