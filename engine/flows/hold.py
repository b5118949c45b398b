"""Holding deliveries back: a row waits for a reason, and a wait of more than 30 s stands on the waybill."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg

from engine.base import clock, ids
from engine.base.events import EventType
from engine.delivery import queue
from engine.delivery.queue import Row
from engine.ledger import heads, log

SILENT = timedelta(seconds=30)  # waits up to here need no event


async def postpone(pool: asyncpg.Pool, rows: Sequence[Row], until: datetime, *, reason: str) -> None:
    """Look at the rows again at `until`. One `queued` event per row that has waited past the silent time."""
    now = clock.now()
    told = [row for row in rows if now - row.due_at > SILENT and row.waiting is None]
    silent = [row.key for row in rows if row not in told]
    async with pool.acquire() as connection, connection.transaction():
        await queue.postpone(connection, silent, until, None)
        if not told:
            return
        await queue.postpone(connection, [row.key for row in told], until, reason)
        locked = await heads.lock(connection, {row.account_id for row in told})
        detail = log.detail_text({"reason": reason, "until": clock.iso(until)})
        entries = [
            log.Entry(
                row.account_id,
                EventType.QUEUED,
                detail,
                now,
                row.message_id,
                ids.format_id(ids.Kind.MESSAGE, row.message_id),
            )
            for row in told
        ]
        await log.append(connection, log.seal_all(locked, entries))
        await heads.save(connection, locked.values())
