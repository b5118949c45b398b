"""Holding deliveries back: a row waits for a reason, and a wait of more than 30 s stands on the waybill."""

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import asyncpg

from engine.base import clock, ids
from engine.base.events import EventType
from engine.delivery import holds, queue
from engine.delivery.holds import Hold
from engine.delivery.queue import Row
from engine.ledger import heads, log
from engine.ledger.events import append_events
from engine.store.queries import Conn, columns

SILENT = timedelta(seconds=30)  # waits up to here need no event
LOOK_AGAIN_S = 86_400.0  # at rows under an open hold: should one ever be left behind, it is found within a day
SPREAD_S = 30.0  # rows whose hold ends by itself come back over so long


async def postpone(pool: asyncpg.Pool, rows: Sequence[Row], until: datetime, *, reason: str) -> None:
    """Look at the rows again at `until`. One `queued` event per row that will have waited past the silent time."""
    now = clock.now()
    told = [row for row in rows if until - _waits_since(row) > SILENT and row.waiting is None]
    news = {row.key for row in told}
    silent = [row.key for row in rows if row.key not in news]
    async with pool.acquire() as connection, connection.transaction():
        if told:  # heads before rows, as in `hold_rows`
            await heads.lock(connection, {row.account_id for row in told})
        await queue.postpone(connection, silent, until, None)
        # What was told of before waits on: its waybill needs no second event, its recipients show the new time.
        await queue.show_next(connection, ((row, until) for row in rows if row.waiting is not None or row.key in news))
        if not told:
            return
        await queue.postpone(connection, [row.key for row in told], until, reason)
        await tell(connection, ((row, {"reason": reason, "until": clock.iso(until)}) for row in told), now)


async def set_aside(pool: asyncpg.Pool, held: Sequence[tuple[Row, Hold]]) -> None:
    """Put deliveries in hand under the operator's holds: one transaction, a `queued` event for each that is new there.

    A hold that was lifted meanwhile takes nothing; a delivery settled meanwhile is left alone. No attempt is counted.
    """
    now = clock.now()
    async with pool.acquire() as connection, connection.transaction():
        await hold_rows(connection, held, now)


async def hold_rows(connection: Conn, held: Sequence[tuple[Row, Hold]], now: datetime) -> int:
    """The same within the caller's transaction; returns how many rows are newly under their hold."""
    standing = {one["id"] for one in await holds.LOCK_HOLDS.records(connection, [hold.id for _, hold in held])}
    wanted = {row.key: (row, hold) for row, hold in held if hold.id in standing}
    if not wanted:
        return 0
    # Heads before rows, as settling has it: two that wait for each other would end in a deadlock.
    await heads.lock(connection, {row.account_id for row, _ in wanted.values()})
    found = await holds.ROWS_TO_HOLD.records(connection, *columns(list(wanted), 2))
    rows = [(one["message_id"], one["domain"]) for one in found]
    laid = [(*key, wanted[key][1].id, _look_at(wanted[key][1], now)) for key in rows]
    await holds.HOLD_ROWS.execute(connection, *columns(laid, 4))
    fresh = [wanted[key] for key, one in zip(rows, found, strict=True) if one["held_by"] != wanted[key][1].id]
    await queue.show_next(connection, ((row, hold.until) for row, hold in map(wanted.__getitem__, rows)))
    await tell(connection, ((row, _detail(hold)) for row, hold in fresh), now)
    return len(fresh)


async def tell(connection: Conn, told: Iterable[tuple[Row, dict[str, object]]], at: datetime) -> None:
    """A `queued` event with its detail for each row, within the caller's transaction."""
    entries = [
        log.Entry(
            row.account_id,
            EventType.QUEUED,
            log.detail_text(row.event_scope | detail),
            at,
            row.message_id,
            ids.format_id(ids.Kind.MESSAGE, row.message_id),
        )
        for row, detail in told
    ]
    await append_events(connection, entries)


def _waits_since(row: Row) -> datetime:
    """Short waits told of nobody move a fresh row's due time: it has waited since it was accepted."""
    return row.due_at if row.attempts else row.accepted_at


def _look_at(hold: Hold, now: datetime) -> datetime:
    if hold.until is not None:
        return hold.until + timedelta(seconds=random.uniform(0, SPREAD_S))
    return now + timedelta(seconds=LOOK_AGAIN_S * random.uniform(0.8, 1.2))


def _detail(hold: Hold) -> dict[str, object]:
    until = None if hold.until is None else clock.iso(hold.until)
    return {"reason": holds.WAITING, "note": hold.reason, "held": hold.kind, "until": until}
