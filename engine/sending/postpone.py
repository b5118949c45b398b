"""Postpone deliveries: set a later due time with a reason. A wait of more than 30 s adds a `queued` event."""

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import asyncpg

from engine.base import clock, ids, trace_context
from engine.base.events import EventType
from engine.delivery import holds, queue
from engine.delivery.holds import Hold
from engine.delivery.queue import Row
from engine.delivery.wait_reasons import QueuedReason
from engine.ledger import heads, log
from engine.ledger.events import append_events
from engine.store.queries import Conn, columns

SILENT = timedelta(seconds=30)  # waits up to this add no event
RECHECK_S = 86_400.0  # of rows under a hold without end, in case the end of the hold missed one
SPREAD_S = 30.0  # over which rows are released when their hold expires


async def postpone(pool: asyncpg.Pool, rows: Sequence[Row], until: datetime, *, reason: QueuedReason) -> None:
    """Postpone the rows until `until`; add one `queued` event per row that will have waited longer than SILENT."""
    now = clock.now()
    announced = [row for row in rows if until - _waits_since(row) > SILENT and row.waiting is None]
    announced_keys = {row.key for row in announced}
    silent = [row for row in rows if row.key not in announced_keys]
    async with pool.acquire() as connection, connection.transaction():
        if announced:  # heads before rows, as in `hold_rows`
            await heads.lock(connection, {row.account_id for row in announced})
        await queue.postpone(connection, silent, until, None)
        # Rows announced before need no second event, but their recipients show the new time.
        await queue.show_next(
            connection, ((row, until) for row in rows if row.waiting is not None or row.key in announced_keys)
        )
        if not announced:
            return
        await queue.postpone(connection, announced, until, reason)
        await add_queued_events(
            connection, ((row, {"reason": reason, "until": clock.iso(until)}) for row in announced), now
        )


async def set_aside(pool: asyncpg.Pool, held: Sequence[tuple[Row, Hold]]) -> None:
    """Put deliveries in memory under the operator's holds, in one transaction; each newly held one gets a `queued`
    event.

    Skips holds that were lifted and deliveries that were settled meanwhile. No attempt is counted.
    """
    now = clock.now()
    async with pool.acquire() as connection, connection.transaction():
        await hold_rows(connection, held, now)


async def hold_rows(connection: Conn, held: Sequence[tuple[Row, Hold]], now: datetime) -> int:
    """Put rows under holds within the caller's transaction; return how many are newly under their hold."""
    in_force = {one["id"] for one in await holds.LOCK_HOLDS.records(connection, [hold.id for _, hold in held])}
    wanted = {row.key: (row, hold) for row, hold in held if hold.id in in_force}
    if not wanted:
        return 0
    # Heads before rows, as in settling, to avoid a deadlock.
    await heads.lock(connection, {row.account_id for row, _ in wanted.values()})
    found = await holds.ROWS_TO_HOLD.records(connection, *columns(list(wanted), 2))
    rows = [(one["message_id"], one["domain"]) for one in found]
    laid = [(*key, wanted[key][1].id, _recheck_at(wanted[key][1], now)) for key in rows]
    await holds.HOLD_ROWS.execute(connection, *columns(laid, 4))
    new = [wanted[key] for key, one in zip(rows, found, strict=True) if one["held_by"] != wanted[key][1].id]
    await queue.show_next(connection, ((row, hold.until) for row, hold in map(wanted.__getitem__, rows)))
    await add_queued_events(connection, ((row, _detail(hold)) for row, hold in new), now)
    return len(new)


async def add_queued_events(connection: Conn, details: Iterable[tuple[Row, dict[str, object]]], at: datetime) -> None:
    """Append a `queued` event with its detail for each row, within the caller's transaction."""
    entries = [
        log.Entry(
            row.account_id,
            EventType.QUEUED,
            log.detail_text(trace_context.detail_of(row.traceparent) | row.event_scope | detail),
            at,
            row.message_id,
            ids.format_id(ids.Kind.MESSAGE, row.message_id),
        )
        for row, detail in details
    ]
    await append_events(connection, entries)


def _waits_since(row: Row) -> datetime:
    """Return the time since when a row waits; a fresh row waits since acceptance, whatever its due time."""
    return row.due_at if row.attempts else row.accepted_at


def _recheck_at(hold: Hold, now: datetime) -> datetime:
    if hold.until is not None:
        return hold.until + timedelta(seconds=random.uniform(0, SPREAD_S))
    return now + timedelta(seconds=RECHECK_S * random.uniform(0.8, 1.2))


def _detail(hold: Hold) -> dict[str, object]:
    until = clock.iso_or_none(hold.until)
    return {"reason": QueuedReason.OPERATOR_HOLD, "note": hold.reason, "held": hold.kind, "until": until}
