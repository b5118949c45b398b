"""List the deliveries of an endpoint by state, type and time, read exact requests and answers, and replay many.

State and type are no columns to search by, so a filtered page reads a bounded number of deliveries and may be short.
Its cursor goes on where the reading ended.
"""

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base.errors import not_found
from engine.base.list_filters import FIRST_ID, LAST_ID
from engine.events.webhooks import store
from engine.events.webhooks.types import CandidateRow, DeliveryRow, ExchangeRow, StoredEventRow

MAX_SCANNED = 500  # deliveries that a filtered page reads
MAX_REPLAYED = 1_000  # deliveries that one call queues
MAX_REPLAY_PAGES = 10  # of MAX_SCANNED deliveries, that one call reads

DeliveryState = Literal["pending", "delivered", "failed"]


class DeliveryFilter(Struct, frozen=True):
    """Which deliveries are wanted: event ids from `low` to below `high`, with a state and a type, None: any."""

    low: UUID = FIRST_ID
    high: UUID = LAST_ID
    state: str | None = None
    type: str | None = None

    @property
    def is_open(self) -> bool:
        """Return True if every delivery in the range matches."""
        return self.state is None and self.type is None

    def matches(self, one: CandidateRow) -> bool:
        """Return True if the delivery has the wanted state and type."""
        return self.state in {None, one.state} and self.type in {None, one.type}


class DeliveryRows(Struct, frozen=True):
    """A page of deliveries, and the event id below which the next page begins; None: no more."""

    rows: list[DeliveryRow]
    next_below: UUID | None


class Replayed(Struct, frozen=True):
    """How many deliveries were queued, and the event id below which others of the window may wait; None: none."""

    queued: int
    next_below: UUID | None


class DeliveryRecord(Struct, frozen=True):
    """A delivery with the exchanges of its attempts, and its event; None if the event was purged."""

    row: DeliveryRow
    exchanges: list[ExchangeRow]
    event: StoredEventRow | None


def chosen(
    found: Sequence[CandidateRow], wanted: DeliveryFilter, *, limit: int, scanned: int
) -> tuple[list[CandidateRow], UUID | None]:
    """Return at most `limit` matches of `found`, and the event id below which the next page begins. Pure.

    `found` was read with the limit `scanned`: if it is shorter, no other delivery follows.
    """
    matches = [one for one in found if wanted.matches(one)]
    if len(matches) > limit:
        return matches[:limit], matches[limit - 1].event_id
    return matches, found[-1].event_id if len(found) == scanned else None


async def page(pool: asyncpg.Pool, account: UUID, webhook: UUID, wanted: DeliveryFilter, *, limit: int) -> DeliveryRows:
    """Return a page of deliveries, newest event first; a filtered one may be short, even empty, before the last."""
    await _check_exists(pool, account, webhook)
    scanned = limit + 1 if wanted.is_open else MAX_SCANNED
    found = await store.candidates(pool, account, webhook, before=wanted.high, since=wanted.low, limit=scanned)
    rows, below = chosen(found, wanted, limit=limit, scanned=scanned)
    return DeliveryRows(await store.deliveries(pool, account, webhook, rows), below)


async def read(pool: asyncpg.Pool, account: UUID, webhook: UUID, event: UUID) -> DeliveryRecord:
    """Return one delivery with its exact exchanges; raise the 404 unless the endpoint had the event."""
    await _check_exists(pool, account, webhook)
    found = await store.candidates(
        pool, account, webhook, before=UUID(int=min(event.int + 1, LAST_ID.int)), since=event, limit=1
    )
    if not found:
        raise not_found("webhook delivery")
    [row] = await store.deliveries(pool, account, webhook, found)
    exchanges = await store.EXCHANGES.fetch(pool, webhook, event)
    return DeliveryRecord(row, exchanges, await store.EVENT.first(pool, account, event, found[0].seq, webhook))


async def replay_window(
    pool: asyncpg.Pool, account: UUID, webhook: UUID, wanted: DeliveryFilter, *, limit: int
) -> Replayed:
    """Queue the matching deliveries again, newest first, at most `limit`; what waits for a retry becomes due now.

    Each page of them is one statement. A call that fails midway may be repeated: what it has queued is pending then.
    """
    await _check_exists(pool, account, webhook)
    queued, below = 0, wanted.high
    for _ in range(MAX_REPLAY_PAGES):
        found = await store.candidates(pool, account, webhook, before=below, since=wanted.low, limit=MAX_SCANNED)
        rows, end = chosen(found, wanted, limit=limit - queued, scanned=MAX_SCANNED)
        queued += await store.replay_many(pool, account, webhook, rows)
        if end is None:
            return Replayed(queued, None)
        below = end
        if queued >= limit:
            break
    return Replayed(queued, below)


async def _check_exists(pool: asyncpg.Pool, account: UUID, webhook: UUID) -> None:
    if await store.READ.first(pool, account, webhook) is None:
        raise not_found("webhook endpoint")
