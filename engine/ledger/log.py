"""The account log: one append-only, hash-chained list of events per account.

hash = SHA-256(prevHash ‖ "\\n" ‖ seq ‖ "\\n" ‖ occurredAt ‖ "\\n" ‖ payload), hashes as lower-case hex; the first
event's prevHash is 64 zeros. Sequence numbers start at 1 and have no gaps, because they come from the account's locked
head.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import clock, ids
from engine.ledger.heads import AccountHead
from engine.store.database_errors import MissingPartition
from engine.store.queries import Conn, Queries
from engine.store.row_sets import Column, RowSet


class Entry(Struct):
    """An event to be appended. `detail` is JSON text; `message` is the message's public id, if it has one."""

    account_id: UUID
    type: str
    detail: str
    occurred_at: datetime
    message_id: UUID | None = None
    message: str | None = None


class LogRow(Struct):
    """A sealed event, with the columns of the table in order."""

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


class UnsealedEvent(Struct):
    """An event that a database function numbers and hashes. `link` is what its hash covers beside the hash and number
    before it: newline, time (24 characters), newline, payload. `place` counts the events of the call from 1.
    """

    id: UUID
    account_id: UUID
    type: str
    message_id: UUID | None
    occurred_at: datetime
    link: str
    place: int


UNSEALED = RowSet(
    "unsealed",
    UnsealedEvent,
    Column("id"),
    Column("account_id", repeats=True),
    Column("type", repeats=True),
    Column("message_id"),
    Column("occurred_at", repeats=True),
    Column("link"),
    Column("place", "integer"),
)

_SQL = Queries.beside(__file__, "log.sql")
# For statements that store more than events: it requires the row set EVENT and an expression `sealed` with its columns.
APPEND_EVENTS = _SQL.fragment("append_events")
# For functions that seal events themselves: they require the row sets UNSEALED and EVENT.
SEALING = {
    name: _SQL.fragment(name)
    for name in ("sealing_variables", "lock_heads", "seal_events", "append_sealed", "append_events")
}
_APPEND = _SQL.wide("append_events", EVENT, append_events=APPEND_EVENTS)


def chained(previous: bytes, seq: int, occurred_at: datetime, payload: str) -> bytes:
    """Return the hash of the event that follows the one with hash `previous`."""
    return sha256(f"{previous.hex()}\n{seq}\n{clock.iso(occurred_at)}\n{payload}".encode()).digest()


def payload_of(entry: Entry) -> str:
    """Return the exact text that is stored and hashed."""
    message = "null" if entry.message is None else f'"{entry.message}"'
    return f'{{"type":"{entry.type}","messageId":{message},"detail":{entry.detail}}}'


def seal(head: AccountHead, entries: Iterable[Entry], event_ids: Iterable[UUID]) -> list[LogRow]:
    """Number and hash the entries of one account, continuing from the head, and advance the head."""
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


def seal_all(heads: dict[UUID, AccountHead], entries: list[Entry]) -> list[LogRow]:
    """Seal the entries of several accounts, in order within each."""
    event_ids = ids.uuid7s(len(entries))
    by_account: dict[UUID, list[Entry]] = {}
    for entry in entries:
        by_account.setdefault(entry.account_id, []).append(entry)
    return [row for account, own in by_account.items() for row in seal(heads[account], own, event_ids)]


def unsealed(accounts: Sequence[UUID], entries: Iterable[Entry]) -> tuple[list[UnsealedEvent], list[int]]:
    """Return the events of these accounts, grouped in their order, and the number of each one's."""
    by_account: dict[UUID, list[Entry]] = {account: [] for account in accounts}
    for entry in entries:
        by_account[entry.account_id].append(entry)
    grouped = [entry for own in by_account.values() for entry in own]
    event_ids = ids.uuid7s(len(grouped))
    rows = [
        UnsealedEvent(
            event_id,
            entry.account_id,
            entry.type,
            entry.message_id,
            entry.occurred_at,
            f"\n{clock.iso(entry.occurred_at)}\n{payload_of(entry)}",
            place,
        )
        for place, (entry, event_id) in enumerate(zip(grouped, event_ids, strict=True), start=1)
    ]
    return rows, [len(own) for own in by_account.values()]


async def append(connection: Conn, rows: list[LogRow]) -> None:
    """Store sealed events in the caller's transaction, which has locked the heads and saves them.

    If the week's partition is missing, a savepoint keeps the transaction usable; the second try finds the partition
    made.
    """
    events = EVENT.of(rows)
    try:
        async with connection.transaction():
            await _APPEND.run(connection, events)
    except MissingPartition:
        await _APPEND.run(connection, events)


def detail_text(detail: object) -> str:
    """Return an event's detail as JSON text."""
    return orjson.dumps(detail).decode()
