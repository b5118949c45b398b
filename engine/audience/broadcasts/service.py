"""Pause, resume, cancel and delete broadcasts, each in one transaction with its event.

Every change locks the broadcast before the account's head. Acceptance takes the same locks in the same order, so that
after the commit of a pause no process accepts another message of the broadcast.
"""

from datetime import datetime
from uuid import UUID

import asyncpg

from engine.audience.broadcasts import rules, store
from engine.audience.broadcasts.types import (
    Broadcast,
    BroadcastCounts,
    BroadcastStatus,
    BroadcastSummary,
    PauseReason,
    StopReason,
)
from engine.base import clock
from engine.base.errors import existing
from engine.base.events import AccountEvent
from engine.ledger.events import record_event
from engine.store.queries import Conn, Source

SERVICE, OPERATOR = "service", "operator"  # the actors of changes that no person of the account caused


async def read(source: Source, account: UUID, broadcast: UUID) -> Broadcast:
    """Return a broadcast; raise the 404 for an unknown one."""
    return existing(await store.READ.first(source, account, broadcast), rules.WHAT)


async def locked(connection: Conn, account: UUID, broadcast: UUID) -> Broadcast:
    """Return a broadcast and lock it until the transaction ends; raise as `read`."""
    return existing(await store.LOCK.first(connection, account, broadcast), rules.WHAT)


async def pause(pool: asyncpg.Pool, account: UUID, broadcast: UUID, *, actor: str) -> Broadcast:
    """Pause a broadcast that is sending. Raises the 404 or the 409."""
    async with pool.acquire() as connection, connection.transaction():
        row = await locked(connection, account, broadcast)
        if rules.pauses(row):
            await store.move(connection, broadcast, BroadcastStatus.PAUSED, paused=PauseReason.USER)
            await record(connection, row, AccountEvent.BROADCAST_PAUSED, actor, because=PauseReason.USER.value)
    return await read(pool, account, broadcast)


async def resume(pool: asyncpg.Pool, account: UUID, broadcast: UUID, *, actor: str) -> Broadcast:
    """Resume a paused broadcast. Raises the 404 or the 409."""
    async with pool.acquire() as connection, connection.transaction():
        row = await locked(connection, account, broadcast)
        if rules.resumes(row):
            await store.move(connection, broadcast, BroadcastStatus.SENDING, look_at=clock.now())
            await record(connection, row, AccountEvent.BROADCAST_RESUMED, actor)
    return await read(pool, account, broadcast)


async def cancel(pool: asyncpg.Pool, account: UUID, broadcast: UUID, *, actor: str) -> Broadcast:
    """Cancel a broadcast; messages that were accepted are delivered. Raises the 404 or the 409."""
    async with pool.acquire() as connection, connection.transaction():
        row = await locked(connection, account, broadcast)
        if rules.cancels(row):
            await store.move(connection, broadcast, BroadcastStatus.CANCELED)
            counts = await store.counts(connection, broadcast)
            await record(connection, row, AccountEvent.BROADCAST_CANCELED, actor, accepted=counts.accepted)
    return await read(pool, account, broadcast)


async def delete(pool: asyncpg.Pool, account: UUID, broadcast: UUID, *, actor: str) -> None:
    """Delete a broadcast of which nothing was accepted. Raises the 404 or the 409."""
    async with pool.acquire() as connection, connection.transaction():
        row = await locked(connection, account, broadcast)
        rules.check_deletable(row, await store.counts(connection, broadcast))
        await store.delete(connection, broadcast)
        await record(connection, row, AccountEvent.BROADCAST_DELETED, actor)


async def approve(pool: asyncpg.Pool, broadcast: UUID, at: datetime, *, actor: str = OPERATOR) -> Broadcast:
    """Let a reviewed broadcast go out, now or at its time; its account needs no other. Raises the 404, the 409."""
    async with pool.acquire() as connection, connection.transaction():
        account = await _account_of(connection, broadcast)
        await store.APPROVE.execute(connection, account)  # first: the start of a broadcast locks in this order too
        row = await _reviewed(connection, account, broadcast)
        later = row.scheduled_at is not None and row.scheduled_at > at
        status = BroadcastStatus.SCHEDULED if later else BroadcastStatus.SENDING
        await store.move(connection, broadcast, status, look_at=row.scheduled_at if later else at)
        await record(connection, row, AccountEvent.BROADCAST_APPROVED, actor)
    return await read(pool, row.account_id, broadcast)


async def reject(pool: asyncpg.Pool, broadcast: UUID, note: str, *, actor: str = OPERATOR) -> Broadcast:
    """Cancel a reviewed broadcast; its author reads the note. Raises the 404, the 409."""
    async with pool.acquire() as connection, connection.transaction():
        row = await _reviewed(connection, await _account_of(connection, broadcast), broadcast)
        await store.move(connection, broadcast, BroadcastStatus.CANCELED, note=note)
        await record(connection, row, AccountEvent.BROADCAST_REJECTED, actor, note=note)
    return await read(pool, row.account_id, broadcast)


async def hold(
    pool: asyncpg.Pool, account: UUID, broadcast: UUID, why: PauseReason, at: datetime, *, jitter: float
) -> None:
    """Pause a broadcast that is sending until a limit or an obstacle ends; workers look for that."""
    resumes_at = rules.resumes_at(why, at, jitter=jitter)
    async with pool.acquire() as connection, connection.transaction():
        row = await store.LOCK.first(connection, account, broadcast)
        if row is None or row.status != BroadcastStatus.SENDING:
            return
        look_at = rules.next_look(at, resumes_at, jitter=jitter)
        await store.move(
            connection, broadcast, BroadcastStatus.PAUSED, paused=why, resumes_at=resumes_at, look_at=look_at
        )
        until = {} if resumes_at is None else {"resumes_at": clock.iso(resumes_at)}
        await record(connection, row, AccountEvent.BROADCAST_PAUSED, SERVICE, because=why.value, **until)


async def release(pool: asyncpg.Pool, account: UUID, broadcast: UUID, why: PauseReason, at: datetime) -> None:
    """Resume a broadcast whose reason to pause has ended, unless it was paused for another reason meanwhile."""
    async with pool.acquire() as connection, connection.transaction():
        row = await store.LOCK.first(connection, account, broadcast)
        if row is None or row.status != BroadcastStatus.PAUSED or row.paused_because != why:
            return
        await store.move(connection, broadcast, BroadcastStatus.SENDING, look_at=at)
        await record(connection, row, AccountEvent.BROADCAST_RESUMED, SERVICE, because=why.value)


async def finish(pool: asyncpg.Pool, account: UUID, broadcast: UUID) -> BroadcastCounts | None:
    """End a broadcast whose recipients are all accepted or skipped; return its counts, None if it is not so."""
    async with pool.acquire() as connection, connection.transaction():
        row = await store.LOCK.first(connection, account, broadcast)
        if row is None or row.status != BroadcastStatus.SENDING:
            return None
        counts = await store.counts(connection, broadcast)
        if counts.waiting or await store.any_waiting(connection, broadcast):
            return None
        await store.move(connection, broadcast, BroadcastStatus.SENT)
        detail = {"recipients": counts.recipients, "accepted": counts.accepted, "skipped": counts.skipped}
        await record(connection, row, AccountEvent.BROADCAST_FINISHED, SERVICE, **detail)
        return counts


async def stop(connection: Conn, account: UUID, broadcast: UUID, why: StopReason, counts: BroadcastCounts) -> bool:
    """Stop a broadcast for good in the caller's transaction; return False if it is neither sending nor paused."""
    row = await store.LOCK.first(connection, account, broadcast)
    if row is None or row.status not in {BroadcastStatus.SENDING, BroadcastStatus.PAUSED}:
        return False
    await store.move(connection, broadcast, BroadcastStatus.STOPPED, stopped=why)
    detail = {"settled": counts.settled, "bounced": counts.bounced, "complained": counts.complained}
    await record(connection, row, AccountEvent.BROADCAST_STOPPED, SERVICE, because=why.value, **detail)
    return True


async def record(
    connection: Conn, row: BroadcastSummary, kind: AccountEvent, actor: str | None, **detail: object
) -> None:
    """Append an event about a broadcast to the account log."""
    await record_event(connection, row.account_id, kind, {"id": row.public_id, "name": row.name} | detail, actor=actor)


async def _account_of(connection: Conn, broadcast: UUID) -> UUID:
    found = existing(await store.FIND.first(connection, broadcast), rules.WHAT)
    return found.account_id


async def _reviewed(connection: Conn, account: UUID, broadcast: UUID) -> Broadcast:
    row = await locked(connection, account, broadcast)
    rules.check_reviewable(row)
    return row
