"""The billing history: one append-only, hash-chained list of events per account, kept apart from the account log.

The chain is made like that of the account log (engine/ledger/log.py). It outlives the account's erasure, so it has
heads of its own. Events are deleted after ten years (engine/retention/purge_billing.py); a chain may then begin
above 1.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import orjson
from msgspec import Struct

from engine.ledger.log import chained
from engine.store.queries import Conn, Queries, Source
from engine.store.row_sets import Column, RowSet

MAX_PAGE = 200
_CHECKED = 1_000  # events that one statement of the verification reads


class BillingEventRow(Struct, frozen=True):
    """A sealed event of the billing history, with the columns of the table in order."""

    account_id: UUID
    seq: int
    type: str
    occurred_at: datetime
    payload: str
    hash: bytes


class BillingHead(Struct, frozen=True):
    """Both ends of an account's billing history; `purged_hash` is that of event `purged_through_seq`, now deleted."""

    seq: int
    hash: bytes
    purged_through_seq: int
    purged_hash: bytes


class BillingChainVerdict(Struct, frozen=True):
    """The result of verifying a chain; `broken_at` is the first event that does not fit, with the reason."""

    valid: bool
    broken_at: int | None = None
    reason: str | None = None


_EVENT = RowSet(
    "event", BillingEventRow,
    Column("account_id", repeats=True), Column("seq", "bigint"), Column("type"), Column("occurred_at", repeats=True),
    Column("payload"), Column("hash"),
)  # fmt: skip
_SQL = Queries.beside(__file__, "billing_history.sql")
_LOCK = _SQL.rows("lock_billing_head", BillingHead)
_APPEND = _SQL.wide("append_billing_events", _EVENT)
_SAVE = _SQL.command("save_billing_head")
_HEAD = _SQL.rows("billing_head", BillingHead)
_LIST = _SQL.rows("billing_events_after", BillingEventRow)


async def append(
    connection: Conn, account: UUID, events: Sequence[tuple[str, dict[str, object]]], at: datetime
) -> list[BillingEventRow]:
    """Append events (type, payload) in order within the caller's transaction, and return them."""
    if not events:
        return []
    found = await _LOCK.fetch(connection, account, bytes(32))
    seq, last = found[0].seq, found[0].hash
    rows = []
    for kind, payload in events:
        seq += 1
        text = orjson.dumps(payload).decode()
        last = chained(last, seq, at, text)
        rows.append(BillingEventRow(account, seq, kind, at, text, last))
    await _APPEND.run(connection, _EVENT.of(rows))
    await _SAVE.execute(connection, account, seq, last)
    return rows


async def page(source: Source, account: UUID, after: int, limit: int) -> tuple[list[BillingEventRow], bytes]:
    """Return at most `limit` events with a `seq` above `after`, and the hash of the event before the first."""
    head = await _head(source, account)
    if after <= head.purged_through_seq:
        return await _LIST.fetch(source, account, head.purged_through_seq, limit), head.purged_hash
    rows = await _LIST.fetch(source, account, after - 1, limit + 1)
    return rows[1:], rows[0].hash if rows else bytes(32)


async def verify(source: Source, account: UUID) -> BillingChainVerdict:
    """Verify the whole chain of an account against its head."""
    head = await _head(source, account)
    while not (verdict := await _verified(source, account, head)).valid:
        now = await _head(source, account)
        if now.purged_through_seq == head.purged_through_seq:
            break
        head = now  # old events were deleted while the chain was read
    return verdict


async def _head(source: Source, account: UUID) -> BillingHead:
    return await _HEAD.first(source, account) or BillingHead(0, bytes(32), 0, bytes(32))


async def _verified(source: Source, account: UUID, head: BillingHead) -> BillingChainVerdict:
    seq, last = head.purged_through_seq, head.purged_hash
    while rows := await _LIST.fetch(source, account, seq, _CHECKED):
        for row in rows:
            problem = _problem(row, seq, last)
            if problem is None and row.seq == head.seq and row.hash != head.hash:
                problem = "The hash is not the one that was stored apart as the end of the chain."
            if problem is not None:
                return BillingChainVerdict(valid=False, broken_at=seq + 1, reason=problem)
            seq, last = row.seq, row.hash
    if seq < head.seq:
        return BillingChainVerdict(valid=False, broken_at=seq + 1, reason="The event is missing.")
    return BillingChainVerdict(valid=True)


def _problem(row: BillingEventRow, seq: int, last: bytes) -> str | None:
    """Say why an event does not follow the one with number `seq` and hash `last`; None if it does."""
    if row.seq != seq + 1:
        return "The event is missing."
    if chained(last, row.seq, row.occurred_at, row.payload) != row.hash:
        return "The hash does not match the content, or the event before it was changed."
    return None
