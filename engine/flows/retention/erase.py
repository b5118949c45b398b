"""Erasing accounts whose deletion is due: everything of them goes from every table, in short transactions.

closed (keys, sessions, webhooks end; queued mail is held) → what was still to be sent → messages, log, figures, things
→ people who belong to no other account → a tombstone in place of the account. Sub-accounts go before their parent.
Each step finds what is left by itself, so that a process may die anywhere and the next one goes on. What processes
had in hand when the account closed finds its rows gone and is forgotten.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.areas.account_deletion import store
from engine.areas.account_deletion.store import DeletionRow
from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.delivery import holds
from engine.flows.accounts import suspend
from engine.flows.sending.queue_admin import HOLD_KNOWN_S
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.store import caches
from engine.store.database_errors import DatabaseUnavailable, ForeignKeyViolation
from engine.store.queries import Queries, Query

_SQL = Queries.beside(__file__, "erase.sql")
_LOCK = 0x57617965  # "Waye": one process erases at a time on a database
MAX_ROWS = 500  # messages in one transaction: some 10 ms
MAX_SMALL = 5_000  # rows of the narrow tables
MAX_DUE = 100
BUDGET_S = 600.0
PAUSE_S = 0.01  # between transactions: this work is never urgent
ROUNDS = 20  # of sweeping one account, should it still be written to; the next call goes on
HELD = "the account is being erased"

_log = structlog.get_logger("erase")

_TRY_LOCK = _SQL.command("try_lock")
_UNLOCK = _SQL.command("unlock")
_CLOSE = _SQL.command("close_accounts")
_HOLD_ALL = _SQL.command("hold_all")
_NEXT_MESSAGES = _SQL.command("next_messages")
_ERASE_MESSAGES = _SQL.command("erase_messages")
_LEAVERS = _SQL.command("leavers")
_LETTERS = _SQL.command("letters_to")
_ERASE_PEOPLE = _SQL.command("erase_people")
_ERASE_REST = _SQL.command("erase_rest")
_REMAINING = _SQL.command("remaining")
_LAST = tuple(_SQL.command(name) for name in ("erase_head", "erase_request", "erase_account"))
# What was still to go out goes first; versions before their templates, attempts before their webhooks (`_ERASE_REST`).
_UNSENT = tuple(_SQL.command(name) for name in ("unsent", "unposted", "unscheduled"))
_MANY = tuple(
    _SQL.command(name)
    for name in (
        "erase_attempts", "erase_events", "erase_suppressions", "erase_idempotency", "erase_quarters", "erase_versions",
    )
)  # fmt: skip


class ErasurePace(Struct, frozen=True):
    """How long this call may work (by the monotonic clock), and how long the others take to hear of something."""

    ends: float
    hold_known_s: float


class OutOfTime(Exception):  # noqa: N818 - named for what happened
    """The budget ended before the work."""


async def erase_due(
    pool: asyncpg.Pool, at: datetime, *, budget_s: float = BUDGET_S, hold_known_s: float = HOLD_KNOWN_S
) -> list[UUID]:
    """Erase what is due at `at`, and what was begun; returns the accounts that are gone.

    Nothing is returned while another process is at it. What the budget leaves over is left for the next call.
    `hold_known_s`: until every process has heard of a change and put aside what it had in hand.
    """
    gone: list[UUID] = []
    async with _alone(pool) as alone:
        if not alone:
            return gone
        pace = ErasurePace(time.monotonic() + budget_s, hold_known_s)
        for due in await store.DUE.fetch(pool, at, MAX_DUE):
            try:
                gone += await _erase_family(pool, due, pace)
            except OutOfTime:
                break
            except DatabaseUnavailable:
                raise
            except Exception:  # noqa: BLE001 - one account that can't be erased must not keep the others
                _log.exception("erasure failed", account=_public(due.account_id))
    return gone


async def _erase_family(pool: asyncpg.Pool, due: DeletionRow, pace: ErasurePace) -> list[UUID]:
    """One account, its sub-accounts first; it may be gone already, with the account above it."""
    family = await _close(pool, due.account_id)
    if family:
        await asyncio.sleep(pace.hold_known_s)  # by then every process knows of the end of the keys and of the hold
    gone = []
    for account in family:
        if await _erase(pool, account, pace):
            gone.append(account)
            _log.info("account erased", account=_public(account))
    return gone


async def _close(pool: asyncpg.Pool, account: UUID) -> list[UUID]:
    """The point of no return, for the account and those below it; gives them in the order of their erasure."""
    at = clock.now()
    async with pool.acquire() as connection, connection.transaction():
        if await store.READ.first(connection, account) is None:
            return []
        family = [one for one in await suspend.locked_family(connection, account) if account in (one.id, one.parent_id)]
        if await store.READ.first(connection, account) is None:  # canceled at the last moment
            return []
        chosen = [one.id for one in family]
        await store.BEGIN.execute(connection, chosen, at)
        for row in await _CLOSE.records(connection, chosen):
            await _HOLD_ALL.execute(connection, ids.uuid7(), _public(row["id"]), HELD)
        await caches.bump(connection, "keys")
        await caches.bump(connection, holds.KIND)
    return sorted(chosen, key=lambda one: (one == account, one))


async def _erase(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> bool:
    """Everything of one closed account. False when it is still written to: the next call goes on."""
    for _ in range(ROUNDS):
        swept = await _sweep(pool, account, pace)
        await _erase_people(pool, account, pace)
        if swept:  # so that an outcome on its way does not find the account gone between two of its statements
            await asyncio.sleep(pace.hold_known_s)
            continue
        try:
            if await _bury(pool, account):
                return True
        except ForeignKeyViolation as error:  # something new in between, such as its figures
            _log.info("erasure goes round again", account=_public(account), why=error.constraint)
        await asyncio.sleep(PAUSE_S)
    return False


async def _sweep(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> int:
    """All rows that there may be many of; how many there were."""
    swept = 0
    for query in _UNSENT:
        swept += await _empty(pool, query, account, pace)
    swept += await _messages(pool, account, pace)
    for query in _MANY:
        swept += await _empty(pool, query, account, pace)
    return swept


async def _empty(pool: asyncpg.Pool, query: Query, account: UUID, pace: ErasurePace) -> int:
    gone = 0
    while True:
        tag = await query.execute(pool, account, MAX_SMALL)
        count = int(tag.rpartition(" ")[2])
        gone += count
        if count == 0:
            return gone
        await _breathe(pace)


async def _messages(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> int:
    gone = 0
    while found := [row["id"] for row in await _NEXT_MESSAGES.records(pool, account, MAX_ROWS)]:
        await _erase_messages(pool, found)
        gone += len(found)
        await _breathe(pace)
    return gone


async def _erase_messages(pool: asyncpg.Pool, found: list[UUID]) -> None:
    public = [ids.format_id(ids.Kind.MESSAGE, message) for message in found]
    await _ERASE_MESSAGES.execute(pool, found, min(found), max(found), public)


async def _erase_people(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> None:
    """Memberships, and people who are on no other account with all that is theirs, our letters to them too."""
    async with pool.acquire() as connection, connection.transaction():
        addresses = [row["email"] for row in await _LEAVERS.records(connection, account)]
    while addresses and (found := [row["id"] for row in await _LETTERS.records(pool, addresses, MAX_ROWS)]):
        await _erase_messages(pool, list(dict.fromkeys(found)))
        await _breathe(pace)
    async with pool.acquire() as connection, connection.transaction():
        await heads.lock(connection, [account])
        leavers = await _LEAVERS.records(connection, account)
        await _ERASE_PEOPLE.execute(
            connection, account, [row["id"] for row in leavers], [row["email"] for row in leavers]
        )


async def _bury(pool: asyncpg.Pool, account: UUID) -> bool:
    """The account itself, with a tombstone in its place; False when something new has come."""
    async with pool.acquire() as connection, connection.transaction():
        family = await suspend.locked_family(connection, account)
        (row,) = await _REMAINING.records(connection, account)
        if row["something"]:
            return False
        await _ERASE_REST.execute(connection, account, _public(account))
        await store.BURY.execute(connection, account, clock.now())
        above = next((one.parent_id for one in family if one.id == account), None)
        if above is not None and any(one.id == above and one.status != "closing" for one in family):
            await record_event(
                connection, above, AccountEvent.SUB_ACCOUNT_ERASED, {"id": _public(account)}, actor="service"
            )
        for query in _LAST:
            await query.execute(connection, account)
        for kind in ("keys", "domains", "streams", holds.KIND):
            await caches.bump(connection, kind)
    return True


async def _breathe(pace: ErasurePace) -> None:
    if time.monotonic() > pace.ends:
        raise OutOfTime
    await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def _alone(pool: asyncpg.Pool) -> AsyncIterator[bool]:
    """Holds the right to erase, where no other session has it. The right ends with its session."""
    async with pool.acquire() as connection:
        (row,) = await _TRY_LOCK.records(connection, _LOCK)
        if not row["held"]:
            yield False
            return
        try:
            yield True
        finally:
            if not connection.is_closed():
                await _UNLOCK.records(connection, _LOCK)


def _public(account: UUID) -> str:
    return ids.format_id(ids.Kind.ACCOUNT, account)
