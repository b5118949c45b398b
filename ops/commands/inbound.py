"""`ops inbound`: claimed addresses, inbound routes and received messages of any account."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import click
import msgspec
from msgspec import Struct

from api.areas.inbound_messages.resources import detail_of
from engine.base import clock, ids
from engine.receiving.inbound_messages import rules, store
from engine.receiving.inbound_messages.types import ReceivedRow
from engine.store.queries import Queries
from ops.commands.base import (
    account_filter,
    as_json,
    in_database,
    limit_option,
    print_json,
    record,
    reported,
    show_rows,
)
from ops.commands.find_account import find_account

_SQL = Queries.beside(__file__, "inbound.sql")


class NewestAddressRow(Struct, frozen=True):
    """A line of the list of claimed addresses; `receives`: its domain has not moved to another account."""

    id: UUID
    account_id: UUID
    account: str
    address: str
    label: str | None
    enabled: bool
    receives: bool
    created_at: datetime
    last_received_at: datetime | None


class NewestRouteRow(Struct, frozen=True):
    """A line of the list of inbound routes."""

    id: UUID
    account_id: UUID
    account: str
    target: str
    action: str
    webhook_id: UUID | None
    forward_to: str | None
    enabled: bool
    created_at: datetime


_ADDRESSES = _SQL.rows("newest_addresses", NewestAddressRow)
_ROUTES = _SQL.rows("newest_routes", NewestRouteRow)


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
_limit = limit_option(50, most=10_000)


@click.group()
def inbound() -> None:
    """Show what receives mail, and where it goes."""


@inbound.command("addresses")
@account_filter
@_limit
@as_json
@reported
def inbound_addresses(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the newest claimed addresses. `receives` is no where the domain has moved to another account."""
    show_rows(
        in_database(addresses, account=account, limit=limit),
        ["account", "address", "label", "enabled", "receives", "lastReceivedAt", "id"],
        as_json=as_json,
    )


@inbound.command("routes")
@account_filter
@_limit
@as_json
@reported
def inbound_routes(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the newest inbound routes: the address or domain, and where its mail goes."""
    show_rows(
        in_database(routes, account=account, limit=limit),
        ["account", "target", "action", "webhookId", "forwardTo", "enabled", "id"],
        as_json=as_json,
    )


@inbound.command("list")
@account_filter
@_limit
@as_json
@reported
def inbound_list(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the newest received messages."""
    found = in_database(newest, account=account, limit=limit)
    show_rows(
        found,
        ["receivedAt", "account", "envelopeFrom", "recipient", "subject", "spamScore", "action", "id"],
        as_json=as_json,
        empty="No received messages.",
    )


@inbound.command("show")
@click.argument("message", metavar="MESSAGE_ID", help="Id of the received message (imsg_…).")
@as_json
@reported
def inbound_show(*, message: str, as_json: bool) -> None:
    """Show one received message (imsg_…) with its verdicts and text; --json adds its header and HTML."""
    found = in_database(opened, message)
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(in_words(found)))


@inbound.command("raw")
@click.argument("message", metavar="MESSAGE_ID", help="Id of the received message (imsg_…).")
@reported
def inbound_raw(*, message: str) -> None:
    """Write the bytes of a received message (imsg_…) to standard output, even if they are infected."""
    sys.stdout.buffer.write(in_database(raw, message))


async def addresses(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest claimed addresses of one account, or of all (`account` None)."""
    owner = None if account is None else await find_account(pool, account)
    return [
        record(row, id=ids.Kind.INBOUND_ADDRESS, account_id=ids.Kind.ACCOUNT)
        for row in await _ADDRESSES.fetch(pool, owner, limit)
    ]


async def routes(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest inbound routes of one account, or of all (`account` None)."""
    owner = None if account is None else await find_account(pool, account)
    return [
        record(row, id=ids.Kind.INBOUND_ROUTE, account_id=ids.Kind.ACCOUNT, webhook_id=ids.Kind.WEBHOOK)
        for row in await _ROUTES.fetch(pool, owner, limit)
    ]


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
    _, mime = await _found(pool, message)
    if mime is None:
        raise ValueError(f"The content of {message} was deleted, as its route asks.")
    return mime


async def _found(pool: asyncpg.Pool, message: str) -> tuple[ReceivedRow, bytes | None]:
    wanted = ids.parse_id(ids.Kind.RECEIVED, message)
    owner = await _OWNER.first(pool, wanted)
    row = None if owner is None else await store.read(pool, owner.account_id, wanted, domains=None)
    mime = None if row is None else await store.raw(pool, row.raw_id)
    if row is None or (mime is None and not row.is_erased):
        raise ValueError(f"No received message {message} exists.")
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
