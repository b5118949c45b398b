"""Delete records that are older than their account's plan keeps them, a little at a time.

Whole weeks are dropped as partitions once no account keeps them (`purge_weeks`). Before that, accounts with a shorter
retention lose their rows in short transactions; received mail always goes so, because its counts are exact. Unsent mail
and its waybill stay. The account log is deleted from its beginning only; the head keeps the hash of the last deleted
event, so that the rest can be verified. Figures are counted before their source is deleted.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct, field, structs

from engine.base import clock, ids
from engine.base.plans import CAPS, Plan
from engine.base.settings import Settings
from engine.people.account.rules import retention_days
from engine.receiving.analytics import delivery
from engine.retention import purge_received, purge_weeks
from engine.sending.emails.limits import IDEMPOTENCY_DAYS
from engine.sending.statistics import jobs as figures
from engine.sending.statistics.rules import KEPT_DAYS, QUARTER, quarter_of
from engine.store.jobs import Job
from engine.store.own_schema import LOCK_SCHEMA
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "purge.sql", lock_schema=LOCK_SCHEMA)
_LOCK = 0x57617970  # "Wayp": one purge at a time on a database
SWEEP_EVERY = timedelta(hours=20)  # per account: about once a day
MAX_ROWS = 500  # per transaction, about 10 ms
MAX_KEYS = 5_000
MAX_ACCOUNTS = 100
BUDGET_S = 900.0
PAUSE_S = 0.01  # between transactions, since this work is never urgent

_log = structlog.get_logger("purge")


class AccountRetention(Struct, frozen=True):
    """An account and how long its records are kept."""

    account_id: UUID
    plan: str
    retention_days: int | None

    @property
    def kept(self) -> timedelta:
        """Return the retention of the plan, or of the agreement if that is longer."""
        return timedelta(days=retention_days(Plan(self.plan), self.retention_days))


class Purged(Struct):
    """The numbers of deleted records; `finished` is False if the budget ended before the work."""

    accounts: int = 0
    messages: int = 0
    received: int = 0
    events: int = 0
    idempotency_keys: int = 0
    figures: int = 0
    partitions: list[str] = field(default_factory=list)
    finished: bool = True


class Outlook(Struct):
    """The numbers of records that a purge would delete now, without those in `partitions`."""

    accounts: int
    messages: int
    received: int
    events: int
    idempotency_keys: int
    partitions: list[str]


class _Unsent(Struct):
    account_id: UUID
    message_id: UUID


class _Beginning(Struct):
    purged_through_seq: int
    seq: int
    hash: bytes


class _Expired(Struct):
    messages: int
    events: int
    received: int
    keys: int


class _Message(Struct):
    id: UUID


class _Keys(Struct):
    last: str | None
    seen: int
    gone: int


_TRY_LOCK = _SQL.command("try_lock")
_UNLOCK = _SQL.command("unlock")
_KEEPERS = _SQL.rows("account_retentions", AccountRetention)
_DUE = _SQL.rows("due_accounts", AccountRetention)
_FINISH = _SQL.command("finish_figures")
_SWEPT = _SQL.command("swept")
_EXPIRED = _SQL.rows("expired_messages", _Message)
_DELETE_MESSAGES = _SQL.command("delete_messages")
_OLDEST_UNSENT = _SQL.rows("oldest_unsent", _Unsent)
_BEGINNING = _SQL.rows("log_beginning", _Beginning)
_PURGE_LOG = _SQL.command("purge_log")
_DELETE_KEYS = _SQL.rows("delete_keys", _Keys)
_DELETE_QUARTERS = _SQL.command("delete_quarters")
_DELETE_DAYS = _SQL.command("delete_days")
_DELETE_ALERTS = _SQL.command("delete_alerts")
_DELETE_PLATFORM_DAYS = _SQL.command("delete_platform_days")
_COUNT_EXPIRED = _SQL.rows("count_expired", _Expired)


async def purge(
    pool: asyncpg.Pool, at: datetime, *, everyone: bool = False, budget_s: float = BUDGET_S
) -> Purged | None:
    """Delete records that are expired at `at`; return None if another process purges.

    Sweeps each account about once a day, or all now with `everyone`. The next call continues what exceeds the budget.
    """
    async with _alone(pool) as connection:
        if connection is None:
            return None
        ends = time.monotonic() + budget_s
        keepers = await _KEEPERS.fetch(connection)
        longest = _longest(keepers)
        before = at if everyone else at - SWEEP_EVERY
        purged = Purged(finished=await _counted(pool, budget_s))
        while purged.finished and (due := await _DUE.fetch(connection, before, MAX_ACCOUNTS)):
            unsent = await _unsent(connection, at)
            for one in due:
                sweep = Sweep(connection, one, at, unsent.get(one.account_id), purged, ends)
                purged.finished = await sweep.run(rows=one.kept < longest)
                if not purged.finished:
                    break
        if not purged.finished:
            return purged
        await purge_received.forget_copies(connection, at, late=lambda: time.monotonic() > ends)
        await _DELETE_PLATFORM_DAYS.execute(connection, at.date() - timedelta(days=KEPT_DAYS))
        purged.partitions = await purge_weeks.drop(connection, at, longest=longest, shortest=_shortest(keepers))
        return purged


async def _purge_and_log(pool: asyncpg.Pool, _: Settings) -> None:
    purged = await purge(pool, clock.now())
    if purged is not None and (purged.messages or purged.events or purged.partitions):
        _log.info("purged", **structs.asdict(purged))


JOB = Job("purge", every_s=3600, run=_purge_and_log)


async def _counted(pool: asyncpg.Pool, budget_s: float) -> bool:
    """Count everything from the logs before parts of them are deleted; return False if the budget ended before."""
    return await figures.count_ahead(pool, everything=True, budget_s=budget_s) and await delivery.count_ahead(
        pool, everything=True, budget_s=budget_s
    )


async def outlook(pool: asyncpg.Pool, at: datetime) -> Outlook:
    """Return what `purge` would delete at `at`; reads much, changes nothing."""
    async with pool.acquire() as connection:
        keepers = await _KEEPERS.fetch(connection)
        longest = _longest(keepers)
        unsent = await _unsent(connection, at)
        bounds = [_Bounds.of(one, at, unsent.get(one.account_id)) for one in keepers]
        partial = [one.kept < longest for one in keepers]
        nothing = ids.floor_of(0)
        async with connection.transaction(readonly=True):
            await connection.execute("SET LOCAL statement_timeout = 0")
            (found,) = [
                _Expired(*record)
                for record in await connection.fetch(
                    _COUNT_EXPIRED.sql,
                    [one.account_id for one in keepers],
                    [bound.message if rows else nothing for bound, rows in zip(bounds, partial, strict=True)],
                    [bound.event if rows else nothing for bound, rows in zip(bounds, partial, strict=True)],
                    _floor(at - timedelta(days=IDEMPOTENCY_DAYS)),
                    [_floor(at - one.kept) for one in keepers],
                    timeout=600,
                )
            ]
        weeks = await purge_weeks.expired(connection, at, longest=longest)
    return Outlook(len(keepers), found.messages, found.received, found.events, found.keys, weeks)


class _Bounds(Struct, frozen=True):
    """The ids up to which an account's records are deleted. `quarter` and `message` stand for the same time."""

    quarter: int
    message: UUID
    event: UUID

    @classmethod
    def of(cls, keeper: AccountRetention, at: datetime, oldest_unsent: UUID | None) -> "_Bounds":
        """Compute the bounds: messages in whole quarter-hours, as they are counted; events up to the first of unsent
        mail.
        """
        cutoff = at - keeper.kept
        quarter = quarter_of(cutoff)
        event = _floor(cutoff)
        if oldest_unsent is not None:
            event = min(event, ids.floor_of(ids.milliseconds_of(oldest_unsent)))
        return cls(quarter, ids.floor_of(quarter * (QUARTER // timedelta(milliseconds=1))), event)


class Sweep:
    """A purge of one account's records; adds its numbers to `purged`."""

    def __init__(
        self,
        connection: Conn,
        keeper: AccountRetention,
        at: datetime,
        oldest_unsent: UUID | None,
        purged: Purged,
        ends: float,
    ) -> None:
        self._connection = connection
        self._account = keeper.account_id
        self._at = at
        self._bounds = _Bounds.of(keeper, at, oldest_unsent)
        self._kept = keeper.kept
        self._last_week = purge_weeks.last_end(at - keeper.kept)
        self._purged = purged
        self._ends = ends

    async def run(self, *, rows: bool) -> bool:
        """Delete expired records; without `rows`, leave messages and events to the drop of their week.

        Returns False if the budget ended before the work; the next sweep continues.
        """
        async with self._connection.transaction():
            await figures.count_rest(self._connection, self._account)
            final = self._bounds.quarter if rows else quarter_of(self._last_week)
            await _FINISH.execute(self._connection, self._account, final)
        before = _floor(self._at - self._kept)
        self._purged.received += await purge_received.delete_received(
            self._connection, self._account, before, late=self._late
        )
        if rows:
            await self._messages()
            await self._log()
        await self._keys()
        await self._figures()
        if self._late():
            return False
        await _SWEPT.execute(self._connection, self._account, self._at)
        self._purged.accounts += 1
        return True

    def _late(self) -> bool:
        return time.monotonic() > self._ends

    async def _messages(self) -> None:
        while not self._late():
            found = await _EXPIRED.fetch(self._connection, self._account, self._bounds.message, MAX_ROWS)
            if found:
                gone = [row.id for row in found]
                await _DELETE_MESSAGES.execute(self._connection, gone, gone[0], gone[-1])
                self._purged.messages += len(gone)
                await asyncio.sleep(PAUSE_S)
            if len(found) < MAX_ROWS:
                return

    async def _log(self) -> None:
        """Delete events from the beginning without a gap: an old event behind a younger one waits for that one."""
        while not self._late():
            found = await _BEGINNING.fetch(self._connection, self._account, self._bounds.event, MAX_ROWS)
            last = None
            for place, row in enumerate(found, 1):
                if row.seq != row.purged_through_seq + place:
                    break
                last = row
            if last is None:
                return
            await _PURGE_LOG.execute(
                self._connection,
                self._account,
                last.purged_through_seq,
                last.seq,
                last.hash,
                self._bounds.event,
            )
            self._purged.events += last.seq - last.purged_through_seq
            await asyncio.sleep(PAUSE_S)

    async def _keys(self) -> None:
        before, last = _floor(self._at - timedelta(days=IDEMPOTENCY_DAYS)), ""
        while not self._late():
            (page,) = await _DELETE_KEYS.fetch(self._connection, self._account, last, MAX_KEYS, before)
            self._purged.idempotency_keys += page.gone
            if page.last is None or page.seen < MAX_KEYS:
                return
            last = page.last
            await asyncio.sleep(PAUSE_S)

    async def _figures(self) -> None:
        oldest = self._at - timedelta(days=KEPT_DAYS)
        while not self._late():
            (gone,) = await _DELETE_QUARTERS.records(self._connection, self._account, quarter_of(oldest), MAX_KEYS)
            self._purged.figures += gone["untagged"] + gone["tagged"]
            if max(gone) < MAX_KEYS:
                break
            await asyncio.sleep(PAUSE_S)
        await _DELETE_ALERTS.execute(self._connection, self._account, _floor(self._at - self._kept), MAX_KEYS)
        (days,) = await _DELETE_DAYS.records(self._connection, self._account, oldest.date())
        self._purged.figures += days["gone"]


@asynccontextmanager
async def _alone(pool: asyncpg.Pool) -> AsyncIterator[Conn | None]:
    """Yield a session that holds the lock of purges, or None if another session has it; the lock ends with its
    session.
    """
    async with pool.acquire() as connection:
        (row,) = await _TRY_LOCK.records(connection, _LOCK)
        if not row["held"]:
            yield None
            return
        try:
            yield connection
        finally:
            if not connection.is_closed():
                await _UNLOCK.records(connection, _LOCK)


async def _unsent(connection: Conn, at: datetime) -> dict[UUID, UUID]:
    """Return the oldest unsent message of each account, among those old enough to be deleted."""
    newest = _floor(at - timedelta(days=min(caps.retention_days for caps in CAPS.values())))
    return {row.account_id: row.message_id for row in await _OLDEST_UNSENT.fetch(connection, newest)}


def _longest(keepers: list[AccountRetention]) -> timedelta:
    return max(
        (one.kept for one in keepers), default=timedelta(days=max(caps.retention_days for caps in CAPS.values()))
    )


def _shortest(keepers: list[AccountRetention]) -> timedelta:
    return min((one.kept for one in keepers), default=_longest(keepers))


def _floor(at: datetime) -> UUID:
    return ids.floor_of(clock.milliseconds(at))
