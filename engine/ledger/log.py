"""The account log: one append-only, hash-chained list of events per account.

hash = SHA-256(prevHash ‖ "\\n" ‖ seq ‖ "\\n" ‖ occurredAt ‖ "\\n" ‖ payload), hashes as lower-case hex;
the first event's prevHash is 64 zeros. Sequence numbers start at 1 and have no gaps, because they are taken
from the account's locked head.
"""

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import clock, ids
from engine.ledger.heads import Head
from engine.store.database_errors import MissingPartition
from engine.store.queries import Conn, Queries
from engine.store.row_sets import Column, RowSet

NO_DETAIL = "{}"


class Entry(Struct):
    """An event about to be written. `detail` is JSON text; `message` the message's public id, when there is one."""

    account_id: UUID
    type: str
    detail: str
    occurred_at: datetime
    message_id: UUID | None = None
    message: str | None = None


class LogRow(Struct):
    """One sealed event, in the order of the table's columns."""

    id: UUID
    account_id: UUID
    seq: int
    type: str
    message_id: UUID | None
    occurred_at: datetime
    payload: str
    hash: bytes


EVENT = RowSet(
    "event",
    LogRow,
    Column("id"),
    Column("account_id", repeats=True),
    Column("seq", "bigint"),
    Column("type", repeats=True),
    Column("message_id"),
    Column("occurred_at", repeats=True),
    Column("payload"),
    Column("hash"),
)

_SQL = Queries.beside(__file__, "log.sql")
# For statements that store more than events: it wants the row set EVENT and an expression `sealed` with its columns.
APPEND_EVENTS = _SQL.fragment("append_events")
_APPEND = _SQL.wide("append_events", EVENT, append_events=APPEND_EVENTS)


def chained(previous: bytes, seq: int, occurred_at: datetime, payload: str) -> bytes:
    """The hash of one event after the one with hash `previous`."""
    return sha256(f"{previous.hex()}\n{seq}\n{clock.iso(occurred_at)}\n{payload}".encode()).digest()


def payload_of(entry: Entry) -> str:
    """The exact text that is stored and hashed."""
    message = "null" if entry.message is None else f'"{entry.message}"'
    return f'{{"type":"{entry.type}","messageId":{message},"detail":{entry.detail}}}'


def seal(head: Head, entries: Iterable[Entry], event_ids: Iterable[UUID]) -> list[LogRow]:
    """Give the entries of one account their places after the head, and move the head to the last of them."""
    rows = []
    seq, last = head.seq, head.hash
    for entry, event_id in zip(entries, event_ids, strict=False):
        seq += 1
        payload = payload_of(entry)
        last = chained(last, seq, entry.occurred_at, payload)
        rows.append(
            LogRow(
                event_id,
                entry.account_id,
                seq,
                entry.type,
                entry.message_id,
                entry.occurred_at,
                payload,
                last,
            )
        )
    head.seq, head.hash = seq, last
    return rows


def seal_all(heads: dict[UUID, Head], entries: list[Entry]) -> list[LogRow]:
    """Seal entries of several accounts, keeping their order within each."""
    fresh = ids.uuid7s(len(entries))
    by_account: dict[UUID, list[Entry]] = {}
    for entry in entries:
        by_account.setdefault(entry.account_id, []).append(entry)
    return [row for account, own in by_account.items() for row in seal(heads[account], own, fresh)]


async def append(connection: Conn, rows: list[LogRow]) -> None:
    """Write sealed events in the caller's transaction, which holds the heads' locks and saves the heads.

    A savepoint keeps what the transaction has done where the week's partition is missing: that has been made by then.
    """
    events = EVENT.of(rows)
    try:
        async with connection.transaction():
            await _APPEND.run(connection, events)
    except MissingPartition:
        await _APPEND.run(connection, events)


def detail_text(detail: object) -> str:
    """The JSON text of an event's detail."""
    return orjson.dumps(detail).decode()
