"""Received messages of any account, read from the database: `ops inbound list|show|raw`."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from api.areas.inbound_messages.resources import detail_of
from engine.base import clock, ids
from engine.receiving.inbound_messages import rules, store
from engine.receiving.inbound_messages.types import ReceivedSingleRow
from engine.store.queries import Queries
from ops.stored_messages import find_account

_SQL = Queries.beside(__file__, "received_messages.sql")


class NewestReceivedRow(Struct, frozen=True):
    """A line of the list of received messages."""

    id: UUID
    account_id: UUID
    account: str
    envelope_from: str
    recipient: str
    subject: str
    size_bytes: int
    is_spam: bool
    spam_score: float | None
    action: str
    fallback: bool
    remote_ip: str


class ReceivedOwnerRow(Struct, frozen=True):
    """The account that owns a received message."""

    account_id: UUID


_NEWEST = _SQL.rows("newest_received", NewestReceivedRow)
_OWNER = _SQL.rows("owner_of_received", ReceivedOwnerRow)


async def newest(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest received messages of one account, or of all (`account` None)."""
    owner = None if account is None else await find_account(pool, account)
    return [
        {
            "id": ids.format_id(ids.Kind.RECEIVED, row.id),
            "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
            "account": row.account,
            "receivedAt": clock.iso(rules.received_at(row.id)),
            "envelopeFrom": row.envelope_from or "<>",
            "recipient": row.recipient,
            "subject": row.subject,
            "sizeBytes": row.size_bytes,
            "spam": row.is_spam,
            "spamScore": row.spam_score,
            "action": row.action,
            "fallback": row.fallback,
            "remoteIp": row.remote_ip,
        }
        for row in await _NEWEST.fetch(pool, owner, limit)
    ]


async def opened(pool: asyncpg.Pool, message: str) -> dict[str, Any]:
    """Return one received message of any account as the API shows it; raise ValueError if there is none."""
    row, mime = await _found(pool, message)
    return dict(msgspec.to_builtins(await asyncio.to_thread(detail_of, row, mime)))


async def raw(pool: asyncpg.Pool, message: str) -> bytes:
    """Return the bytes of a received message, also of an infected one; raise ValueError if there is none."""
    return (await _found(pool, message))[1]


async def _found(pool: asyncpg.Pool, message: str) -> tuple[ReceivedSingleRow, bytes]:
    wanted = ids.parse_id(ids.Kind.RECEIVED, message)
    owner = await _OWNER.first(pool, wanted)
    row = None if owner is None else await store.read(pool, owner.account_id, wanted, domains=None)
    mime = None if row is None else await store.raw(pool, row.raw_id)
    if row is None or mime is None:
        raise ValueError(f"There is no received message {message}.")
    return row, mime


def in_words(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one message for people: where it came from, its verdicts, its attachments, its text."""
    sender = message["from"] or {"address": "none"}
    yield f"{message['subject'] or '(no subject)'}"
    yield f"from {sender['address']} to {message['recipient']}"
    yield f"envelope sender {message['envelopeFrom'] or '<>'}, sent by {message['remoteIp']} ({message['helo']})"
    yield f"received {message['receivedAt']}, {message['sizeBytes']} bytes, {message['action']}"
    verdicts = [f"{name} {verdict['result']}" for name, verdict in message["authentication"].items()]
    yield f"{', '.join(verdicts)}; spam score {message['spamScore']}"
    for one in message["attachments"]:
        yield f"attachment {one['filename']}, {one['content_type']}, {one['size_bytes']} bytes, {one['scan']}"
    for warning in message["warnings"]:
        yield f"warning: {warning['text']}"
    yield ""
    yield message["text"] or ""
