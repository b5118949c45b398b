"""Erase accounts whose deletion is due: delete their rows from every table, in short transactions.

closed (keys, sessions, webhooks end; queued mail is held) → unsent mail → messages, log, figures, settings → people who
belong to no other account → a tombstone in place of the account. Sub-accounts are erased before their parent.

Each step finds its remaining work by itself, so that after a crash the next call continues. A delivery in memory finds
its rows deleted and is dropped.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.accounts import suspend
from engine.accounts.account_deletion import store
from engine.accounts.account_deletion.store import DeletionRow
from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.base.list_filters import LAST_ID
from engine.delivery import holds
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.retention import purge_received
from engine.sending.queue_admin import HOLD_KNOWN_S
from engine.store import caches
from engine.store.database_errors import DatabaseUnavailable, ForeignKeyViolation
from engine.store.jobs import Job
from engine.store.own_schema import LOCK_SCHEMA
from engine.store.queries import Queries, Query

_SQL = Queries.beside(__file__, "erase.sql", lock_schema=LOCK_SCHEMA)
_LOCK = 0x57617965  # "Waye": one process erases at a time on a database
MAX_ROWS = 500  # messages per transaction, about 10 ms
MAX_SMALL = 5_000  # rows of narrow tables per transaction
MAX_DUE = 100
BUDGET_S = 600.0
PAUSE_S = 0.01  # between transactions, since this work is never urgent
ROUNDS = 20  # of sweeping one account that is still being written to; the next call continues
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
# Unsent mail first; versions before their templates and layouts, attempts before their webhooks (`_ERASE_REST`).
_UNSENT = tuple(_SQL.command(name) for name in ("unsent", "unposted", "unscheduled", "unforwarded", "unforgotten"))
_MANY = tuple(
    _SQL.command(name)
    for name in (
        "erase_attempts", "erase_events", "erase_suppressions", "erase_idempotency", "erase_quarters",
        "erase_tag_quarters", "erase_versions", "erase_layout_versions", "erase_images", "erase_copies",
        "erase_reports", "erase_dmarc",
        "erase_day_counts", "erase_deliveries", "erase_delivery_weeks", "erase_delivery_providers",
        "erase_delivery_waits", "erase_links", "erase_requests", "erase_topic_opt_outs", "erase_members",
        "erase_contacts", "erase_broadcasts",
    )
)  # fmt: skip


class ErasurePace(Struct, frozen=True):
    """The end of this call's budget (monotonic clock), and the time until every process knows of a hold."""

    ends: float
    hold_known_s: float


class OutOfTime(Exception):  # noqa: N818 - named for what happened
    """The budget ended before the work was done."""


async def erase_due(
    pool: asyncpg.Pool, at: datetime, *, budget_s: float = BUDGET_S, hold_known_s: float = HOLD_KNOWN_S
) -> list[UUID]:
    """Erase accounts that are due at `at` or partly erased; return the erased ones.

    Returns nothing while another process erases. The next call continues what exceeds the budget. `hold_known_s` is the
    time until every process knows of a change and has put aside what it had in memory.
    """
    gone: list[UUID] = []
    async with alone(pool, _LOCK) as is_alone:
        if not is_alone:
            return gone
        pace = ErasurePace(time.monotonic() + budget_s, hold_known_s)
        for due in await store.DUE.fetch(pool, at, MAX_DUE):
            try:
                gone += await _erase_family(pool, due, pace)
            except OutOfTime:
                break
            except DatabaseUnavailable:
                raise
            except Exception:  # noqa: BLE001 - an account that cannot be erased must not stop the others
                _log.exception("account not erased", account=_public(due.account_id))
    return gone


JOB = Job("erasures", every_s=60, run=lambda pool, _: erase_due(pool, clock.now()))


async def _erase_family(pool: asyncpg.Pool, due: DeletionRow, pace: ErasurePace) -> list[UUID]:
    """Erase an account and its sub-accounts, sub-accounts first; does nothing if it is already erased."""
    family = await _close(pool, due.account_id)
    if family:
        await asyncio.sleep(pace.hold_known_s)  # until every process knows that the keys ended and the mail is held
    gone = []
    for account in family:
        if await _erase(pool, account, pace):
            gone.append(account)
            _log.info("account erased", account=_public(account))
    return gone


async def _close(pool: asyncpg.Pool, account: UUID) -> list[UUID]:
    """Close the account and its sub-accounts, which is final; return them in the order of erasure."""
    at = clock.now()
    async with pool.acquire() as connection, connection.transaction():
        if await store.READ.first(connection, account) is None:
            return []
        family = [one for one in await suspend.locked_family(connection, account) if account in (one.id, one.parent_id)]
        if await store.READ.first(connection, account) is None:  # canceled meanwhile
            return []
        chosen = [one.id for one in family]
        await store.BEGIN.execute(connection, chosen, at)
        for row in await _CLOSE.records(connection, chosen):
            await _HOLD_ALL.execute(connection, ids.uuid7(), _public(row["id"]), HELD)
        await caches.bump(connection, "keys")
        await caches.bump(connection, holds.KIND)
    return sorted(chosen, key=lambda one: (one == account, one))


async def _erase(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> bool:
    """Erase one closed account; return False if it is still being written to, so that the next call continues."""
    for _ in range(ROUNDS):
        swept = await _sweep(pool, account, pace)
        await _erase_people(pool, account, pace)
        if swept:  # so that settling in progress ends before the account is deleted
            await asyncio.sleep(pace.hold_known_s)
            continue
        try:
            if await _delete_account(pool, account):
                return True
        except ForeignKeyViolation as error:  # new rows meanwhile, such as its figures
            _log.info("erasure repeated: new rows were written", account=_public(account), why=error.constraint)
        await asyncio.sleep(PAUSE_S)
    return False


async def delete_rows(pool: asyncpg.Pool, account: UUID) -> None:
    """Delete the rows of an account that has moved from all large tables, in short transactions."""
    while await _sweep(pool, account, ErasurePace(math.inf, 0.0)):
        pass


async def _sweep(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> int:
    """Delete the rows of all large tables; return how many there were."""
    swept = 0
    for query in _UNSENT:
        swept += await _empty(pool, query, account, pace)
    swept += await _messages(pool, account, pace)
    swept += await _received(pool, account, pace)
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
        await _pause(pace)


async def _messages(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> int:
    gone = 0
    while found := [row["id"] for row in await _NEXT_MESSAGES.records(pool, account, MAX_ROWS)]:
        await _erase_messages(pool, found)
        gone += len(found)
        await _pause(pace)
    return gone


async def _received(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> int:
    async with pool.acquire() as connection:
        late = partial(_is_late, pace)
        gone = await purge_received.delete_received(connection, account, LAST_ID, late=late)
    if gone and late():
        raise OutOfTime
    return gone


def _is_late(pace: ErasurePace) -> bool:
    return time.monotonic() > pace.ends


async def _erase_messages(pool: asyncpg.Pool, found: list[UUID]) -> None:
    public = [ids.format_id(ids.Kind.MESSAGE, message) for message in found]
    await _ERASE_MESSAGES.execute(pool, found, min(found), max(found), public)


async def _erase_people(pool: asyncpg.Pool, account: UUID, pace: ErasurePace) -> None:
    """Delete memberships, and people who are on no other account, with their records and system mails."""
    async with pool.acquire() as connection, connection.transaction():
        addresses = [row["email"] for row in await _LEAVERS.records(connection, account)]
    while addresses and (found := [row["id"] for row in await _LETTERS.records(pool, addresses, MAX_ROWS)]):
        await _erase_messages(pool, list(dict.fromkeys(found)))
        await _pause(pace)
    async with pool.acquire() as connection, connection.transaction():
        await heads.lock(connection, [account])
        leavers = await _LEAVERS.records(connection, account)
        await _ERASE_PEOPLE.execute(
            connection, account, [row["id"] for row in leavers], [row["email"] for row in leavers]
        )


async def _delete_account(pool: asyncpg.Pool, account: UUID) -> bool:
    """Delete the account and leave a tombstone; return False if new rows were written meanwhile."""
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
        for kind in ("keys", "domains", "streams", "inbound", holds.KIND):
            await caches.bump(connection, kind)
    return True


async def _pause(pace: ErasurePace) -> None:
    if _is_late(pace):
        raise OutOfTime
    await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def alone(pool: asyncpg.Pool, lock: int) -> AsyncIterator[bool]:
    """Hold the lock that allows one process at a time, if it is free; the lock ends with its session."""
    async with pool.acquire() as connection:
        (row,) = await _TRY_LOCK.records(connection, lock)
        if not row["held"]:
            yield False
            return
        try:
            yield True
        finally:
            if not connection.is_closed():
                await _UNLOCK.records(connection, lock)


def _public(account: UUID) -> str:
    return ids.format_id(ids.Kind.ACCOUNT, account)
