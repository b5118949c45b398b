"""Store source addresses: pools, assignments, warm-ups and their counts, and rests.

A rest keeps an address from a site that refused it. The operator's changes take effect in every process within a
second. Counts are exact over all processes: each reserves messages in a row before it sends them, and returns what it
did not send.
"""

from collections.abc import Collection, Sequence
from datetime import date, datetime
from uuid import UUID

import asyncpg
import msgspec
import structlog
from msgspec import Struct

from engine.delivery.sources import Assignment, Pool, PoolMember, SourceBook, Warmup, book
from engine.store.caches import Cache, bump
from engine.store.queries import Queries, Source, columns

KIND = "sources"  # the stamp's name
MAX_RESTS = 50_000  # read in one query
_SQL = Queries.beside(__file__, "sources_store.sql")

_log = structlog.get_logger("sources")


class PoolRow(Struct, frozen=True):
    """A stored pool."""

    name: str
    members: str


class WarmupRow(Struct, frozen=True):
    """A stored warm-up."""

    ip: str
    started_on: date
    plan: list[int]


class Count(Struct, frozen=True):
    """Messages sent to a site (or from an address) on a day."""

    site: str
    used: int


class MailKind(Struct, frozen=True):
    """A message's stream id and its origin (`api`, `smtp`, `broadcast`, `verification`)."""

    id: UUID
    stream: str
    source: str


class Rest(Struct, frozen=True):
    """The rest of an address at a site until a time; `rests` counts them in a row, 0 after the operator ended it."""

    ip: str
    site: str
    until: datetime
    rests: int
    said: str
    changed_at: datetime


class Taken(Struct, frozen=True):
    """The day, address and site whose allowance a message was taken from."""

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
_KINDS = _SQL.rows("kinds_of_mail", MailKind)
_RESTS = _SQL.rows("read_rests", Rest)
_RESTS_OF = _SQL.rows("read_rests_of", Rest)
_WRITE_RESTS = _SQL.command("write_rests")
_END_RESTS = _SQL.command("end_rests")
_FORGET_RESTS = _SQL.command("forget_rests")
_WAKE = _SQL.command("wake_waiting")


class SourceBooks:
    """The source book of one process; `cache` belongs to the process's Stamps."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.cache: Cache[None, SourceBook] = Cache(KIND, self._load)

    async def book(self) -> SourceBook:
        """Return the source book in force. Raises DatabaseUnavailable."""
        return await self.cache.get(None)

    async def _load(self, _: None) -> SourceBook:
        return await read(self._pool)


async def read(source: Source) -> SourceBook:
    """Return all source settings; log and leave out a pool that this version cannot read."""
    pools = []
    for row in await _POOLS.fetch(source):
        try:
            pools.append(Pool(row.name, msgspec.json.decode(row.members, type=tuple[PoolMember, ...])))
        except msgspec.ValidationError as error:
            _log.error("source pool not readable", name=row.name, error=str(error))
    warmups = [Warmup(row.ip, row.started_on, tuple(row.plan)) for row in await _WARMUPS.fetch(source)]
    return book(pools, await _ASSIGNMENTS.fetch(source), warmups)


# -- the operator's settings ----------------------------------------------------------------------


async def set_pool(pool: asyncpg.Pool, name: str, members: Sequence[PoolMember]) -> None:
    """Create a pool, or replace its members."""
    async with pool.acquire() as connection, connection.transaction():
        await _WRITE_POOL.execute(connection, name, msgspec.json.encode(members).decode())
        await bump(connection, KIND)


async def remove_pool(pool: asyncpg.Pool, name: str) -> bool:
    """Delete a pool; return False if there is none or a stream is assigned to it."""
    async with pool.acquire() as connection, connection.transaction():
        gone = await _DELETE_POOL.records(connection, name)
        await bump(connection, KIND)
    return bool(gone)


async def assign(pool: asyncpg.Pool, assignment: Assignment) -> None:
    """Assign a stream's mail to a pool. Raises ForeignKeyViolation if there is no such pool."""
    async with pool.acquire() as connection, connection.transaction():
        await _WRITE_ASSIGNMENT.execute(connection, assignment.stream, assignment.account_id, assignment.pool)
        await bump(connection, KIND)


async def unassign(pool: asyncpg.Pool, stream: str, account: UUID | None) -> bool:
    """Remove an assignment; return False if there was none."""
    async with pool.acquire() as connection, connection.transaction():
        gone = await _DELETE_ASSIGNMENT.records(connection, stream, account)
        await bump(connection, KIND)
    return bool(gone)


async def warm_up(pool: asyncpg.Pool, warmup: Warmup) -> None:
    """Start the warm-up of an address, or replace its plan."""
    async with pool.acquire() as connection, connection.transaction():
        await _WRITE_WARMUP.execute(connection, warmup.ip, warmup.started_on, list(warmup.plan))
        await bump(connection, KIND)


async def end_warm_up(pool: asyncpg.Pool, ip: str) -> bool:
    """End the warm-up of an address; return False if there was none."""
    async with pool.acquire() as connection, connection.transaction():
        gone = await _DELETE_WARMUP.records(connection, ip)
        await bump(connection, KIND)
    return bool(gone)


async def wake_waiting(source: Source, spread_s: float) -> int:
    """Make deliveries that wait for warm-up due within `spread_s` seconds; return their number."""
    return len(await _WAKE.records(source, spread_s))


# -- counts -----------------------------------------------------------------------------------


async def reserve(source: Source, one: Taken, wanted: int, allowed: int) -> int:
    """Reserve up to `wanted` of the `allowed` messages of a day; return the number reserved."""
    found = await _RESERVE.records(source, one.day, one.ip, one.site, wanted, allowed)
    return int(found[0]["granted"])


async def give_back(source: Source, unused: Sequence[tuple[Taken, int]]) -> None:
    """Return reserved messages that were not sent."""
    rows = [(one.day, one.ip, one.site, count) for one, count in unused]
    await _GIVE_BACK.execute(source, *columns(rows, 4))


async def counts(source: Source, day: date, ip: str, limit: int) -> list[Count]:
    """Return the messages of an address on a day by site, the largest first."""
    return await _COUNTS.fetch(source, day, ip, limit)


async def sums(source: Source, day: date) -> dict[str, int]:
    """Return the messages of each address on a day."""
    return {row.site: row.used for row in await _SUMS.fetch(source, day)}


async def kinds(source: Source, messages: Collection[UUID]) -> dict[UUID, MailKind]:
    """Return stream and origin of these messages."""
    found = await _KINDS.fetch(source, list(messages), min(messages), max(messages)) if messages else []
    return {row.id: row for row in found}


# -- rests -----------------------------------------------------------------


async def rests_since(source: Source, since: datetime) -> list[Rest]:
    """Return the rests changed since a time."""
    return await _RESTS.fetch(source, since, MAX_RESTS)


async def rests_of(source: Source, ip: str, at: datetime, limit: int) -> list[Rest]:
    """Return the rests of an address in force at `at`."""
    return await _RESTS_OF.fetch(source, ip, at, limit)


async def write_rests(source: Source, rests: Sequence[Rest]) -> None:
    """Store rests for all processes; the later of two about the same address and site wins."""
    rows = [(one.ip, one.site, one.until, one.rests, one.said, one.changed_at) for one in rests]
    await _WRITE_RESTS.execute(source, *columns(rows, 6))


async def end_rests(source: Source, ip: str, site: str | None, at: datetime) -> list[str]:
    """End the rests of an address at a site, or at all sites; return the sites."""
    return [row["site"] for row in await _END_RESTS.records(source, ip, site, at)]


async def forget(source: Source, *, days_before: date, rests_before: datetime) -> None:
    """Delete counts and rests that are over."""
    await _FORGET_COUNTS.execute(source, days_before)
    await _FORGET_RESTS.execute(source, rests_before)
