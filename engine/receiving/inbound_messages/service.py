"""Mark received messages read or spam, and delete them: one transaction with an event for each message that changed.

`domains` limits a caller to messages at these domains; None allows all. The account's head is locked first, so that the
kept counts are exact when changes meet each other and new mail.
"""

from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import not_found
from engine.base.events import AccountEvent
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.receiving.inbound_messages import rules, store
from engine.receiving.inbound_messages.types import ReceivedRow
from engine.store.queries import Conn

Change = Callable[[Conn, list[UUID]], Awaitable[set[UUID]]]


class ChangedMessages(Struct, frozen=True):
    """The result of a change: the messages as they are now, those that changed, and ids that are unknown."""

    rows: list[ReceivedRow]
    changed: set[UUID]
    missing: list[UUID]


async def mark_read(
    pool: asyncpg.Pool,
    account: UUID,
    wanted: Collection[UUID],
    *,
    read: bool,
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> ChangedMessages:
    """Mark messages read or unread; the first time of reading stays."""
    at = clock.now()

    async def change(connection: Conn, known: list[UUID]) -> set[UUID]:
        return await store.mark_read(connection, account, known, at, read=read)

    kind = AccountEvent.INBOUND_MESSAGE_READ
    return await _changed(pool, account, wanted, change, kind, domains, {"read": read, **_by(actor)})


async def mark_spam(
    pool: asyncpg.Pool,
    account: UUID,
    wanted: Collection[UUID],
    *,
    spam: bool | None,
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> ChangedMessages:
    """Override the score of messages; None returns the decision to the score, which is never rewritten."""

    async def change(connection: Conn, known: list[UUID]) -> set[UUID]:
        return await store.mark_spam(connection, account, known, spam=spam)

    kind = AccountEvent.INBOUND_MESSAGE_SPAM
    return await _changed(pool, account, wanted, change, kind, domains, {"spam": spam, **_by(actor)})


async def delete(
    pool: asyncpg.Pool,
    account: UUID,
    wanted: Collection[UUID],
    *,
    domains: Collection[str] | None = None,
    actor: str | None = None,
) -> ChangedMessages:
    """Delete messages with their attachments; their bytes go with the last message that has them."""

    async def change(connection: Conn, known: list[UUID]) -> set[UUID]:
        return await store.delete(connection, account, known)

    kind = AccountEvent.INBOUND_MESSAGE_DELETED
    return await _changed(pool, account, wanted, change, kind, domains, _by(actor))


async def _changed(
    pool: asyncpg.Pool,
    account: UUID,
    wanted: Collection[UUID],
    change: Change,
    kind: AccountEvent,
    domains: Collection[str] | None,
    detail: dict[str, object],
) -> ChangedMessages:
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [account])
        if account not in locked:
            raise not_found("account")
        before = {row.id: row for row in await store.read_rows(connection, account, wanted, domains=domains)}
        changed = await change(connection, sorted(before)) if before else set()
        at = clock.now()
        entries = [
            log.Entry(account, kind, log.detail_text(_named(before[message]) | detail), at)
            for message in sorted(changed)
        ]
        if entries:
            await append_locked(connection, locked, entries)
        rows = await store.read_rows(connection, account, before, domains=domains)
    return ChangedMessages(rows, changed, [one for one in wanted if one not in before])


def one_of(found: ChangedMessages) -> ReceivedRow:
    """Return the only message of a change; raise the 404 if it is unknown."""
    if not found.rows:
        raise not_found(rules.WHAT)
    return found.rows[0]


def _named(row: ReceivedRow) -> dict[str, object]:
    return {"id": ids.format_id(ids.Kind.RECEIVED, row.id), "address": row.address}


def _by(actor: str | None) -> dict[str, object]:
    return {} if actor is None else {"actor": actor}
