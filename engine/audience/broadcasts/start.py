"""Start a broadcast: fix its recipients and the counts, once, in one transaction.

due → would it need a review → recipients stored → counts and the watch of outcomes begun → `sending`. Two broadcasts of
an account that start at the same time do so one after the other, so that the second counts the recipients of the first.
"""

from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from engine.audience.broadcasts import audience as broadcast_audience
from engine.audience.broadcasts import service, store
from engine.audience.broadcasts.types import Broadcast, BroadcastStatus, BroadcastSummary
from engine.base.events import AccountEvent
from engine.store.queries import Conn

WATCHED = timedelta(days=30)  # for so long after its end, outcomes of a broadcast are counted
GONE = "Its list or segment was deleted before it started."


async def start(pool: asyncpg.Pool, account: UUID, broadcast: UUID, at: datetime) -> None:
    """Start a broadcast that is due, or let it wait for review; does nothing if it has started meanwhile."""
    async with pool.acquire() as connection, connection.transaction():
        approved = await store.lock_review(connection, account)
        row = await store.LOCK.first(connection, account, broadcast)
        if row is None or not may_start(row, at):
            return
        audience = await broadcast_audience.audience_of(connection, account, row.audience, first=2)
        if audience is None:
            await store.move(connection, broadcast, BroadcastStatus.CANCELED, note=GONE)
            await service.record(connection, row, AccountEvent.BROADCAST_CANCELED, service.SERVICE, reason=GONE)
        elif not approved and await broadcast_audience.needs_review(connection, account, broadcast, row.audience):
            await hold_for_review(connection, row)
        else:
            await broadcast_audience.take_recipients(connection, broadcast, audience)
            await store.START_COUNTS.execute(connection, broadcast, at + WATCHED)
            counts = await store.counts(connection, broadcast)
            detail = {"recipients": counts.recipients}
            await service.record(connection, row, AccountEvent.BROADCAST_STARTED, service.SERVICE, **detail)


def may_start(row: BroadcastSummary, at: datetime) -> bool:
    """Return True if a broadcast is due and its recipients are not fixed yet."""
    if row.started_at is not None:
        return False
    if row.status == BroadcastStatus.SCHEDULED:
        return row.scheduled_at is None or row.scheduled_at <= at
    return row.status == BroadcastStatus.SENDING


async def hold_for_review(connection: Conn, row: Broadcast, actor: str = service.SERVICE) -> None:
    """Let a locked broadcast wait for the operator's review."""
    await store.move(connection, row.id, BroadcastStatus.IN_REVIEW)
    await service.record(connection, row, AccountEvent.BROADCAST_REVIEW_REQUESTED, actor)
