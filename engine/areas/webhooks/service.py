"""Create, change, remove and test webhook endpoints, and replay events to them.

Every change is one transaction with its event in the account's log. The statement that writes an event also selects
the endpoints that receive it, so a change takes effect with its commit.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.webhooks import rules, store
from engine.areas.webhooks.types import EndpointRow
from engine.base import clock, ids, secrets
from engine.base.errors import not_found
from engine.base.events import AccountEvent
from engine.base.plans import CAPS
from engine.ledger import log
from engine.ledger.events import append_events, record_event
from engine.ledger.plan_limits import limit_reached, locked_plan
from engine.store.database_clock import new_id
from engine.store.queries import Conn

KEPT = timedelta(days=30)  # what was posted, and endpoints that were deleted
_PURPOSE = "webhook secrets"


class NewEndpoint(Struct, frozen=True):
    """An endpoint at its making; `secret` is never shown again."""

    id: UUID
    url: str
    event_types: list[str]
    status: str
    secret: str


class NewSecret(Struct, frozen=True):
    """A fresh secret, and until when the former one signs besides."""

    secret: str
    previous_until: datetime


def secret_key(pepper: str) -> bytes:
    """The key that seals signing secrets."""
    return secrets.derived(pepper, _PURPOSE)


async def create(
    pool: asyncpg.Pool, account: UUID, *, url: str, event_types: Sequence[str], pepper: str, actor: str | None = None
) -> NewEndpoint:
    """A new active endpoint; 400 for a URL that can't be posted to, 403 past the plan's number."""
    checked, wanted = rules.checked_url(url), rules.checked_types(event_types)
    secret = rules.new_secret()
    async with pool.acquire() as connection, connection.transaction():
        plan = await locked_plan(connection, account)
        limit, used = CAPS[plan].webhooks, await store.count(connection, account)
        if limit is not None and used >= limit:
            raise limit_reached("webhooks", "webhook endpoints", limit, used)
        webhook = await new_id(connection)
        sealed = secrets.seal(secret_key(pepper), secret.encode(), webhook.bytes)
        await store.INSERT.execute(connection, webhook, account, checked, wanted, sealed)
        await _record(
            connection, account, AccountEvent.WEBHOOK_CREATED, webhook, actor, url=checked, event_types=wanted
        )
    return NewEndpoint(webhook, checked, wanted, "active", secret)


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    webhook: UUID,
    *,
    url: str | None,
    event_types: Sequence[str] | None,
    status: str | None,
    actor: str | None = None,
) -> EndpointRow:
    """The endpoint with the values that are not None in place of its own; what is queued goes to the new URL."""
    checked = None if url is None else rules.checked_url(url)
    wanted = None if event_types is None else rules.checked_types(event_types)
    given = {"url": checked, "event_types": wanted, "status": status}
    changed = {name: value for name, value in given.items() if value is not None}
    async with pool.acquire() as connection, connection.transaction():
        row = await store.CHANGE.first(connection, account, webhook, checked, wanted, status)
        if row is None:
            raise not_found("webhook endpoint")
        if changed:
            await _record(connection, account, AccountEvent.WEBHOOK_UPDATED, webhook, actor, **changed)
    return row


async def rotate(
    pool: asyncpg.Pool, account: UUID, webhook: UUID, *, pepper: str, at: datetime, actor: str | None = None
) -> NewSecret:
    """A new signing secret; the one before it signs a second header for a day."""
    secret, until = rules.new_secret(), at + timedelta(hours=rules.PREVIOUS_HOURS)
    sealed = secrets.seal(secret_key(pepper), secret.encode(), webhook.bytes)
    async with pool.acquire() as connection, connection.transaction():
        if await store.ROTATE.execute(connection, account, webhook, sealed, until) == "UPDATE 0":
            raise not_found("webhook endpoint")
        await _record(
            connection, account, AccountEvent.WEBHOOK_ROTATED, webhook, actor, previous_until=clock.iso(until)
        )
    return NewSecret(secret, until)


async def remove(pool: asyncpg.Pool, account: UUID, webhook: UUID, *, actor: str | None = None) -> None:
    """No event from now on goes to the endpoint; those that are queued still do."""
    async with pool.acquire() as connection, connection.transaction():
        if not await store.DELETE.records(connection, account, webhook):
            raise not_found("webhook endpoint")
        await _record(connection, account, AccountEvent.WEBHOOK_DELETED, webhook, actor)


async def try_out(pool: asyncpg.Pool, account: UUID, webhook: UUID, at: datetime, *, actor: str | None = None) -> UUID:
    """A `webhook.test` event for this endpoint alone, whatever types it wants and though it be disabled; the event."""
    async with pool.acquire() as connection, connection.transaction():
        if await store.READ.first(connection, account, webhook) is None:
            raise not_found("webhook endpoint")
        asked = {} if actor is None else {"actor": actor}
        detail = log.detail_text({"webhook_id": ids.format_id(ids.Kind.WEBHOOK, webhook)} | asked)
        entry = log.Entry(account, AccountEvent.WEBHOOK_TEST, detail, at)
        [event] = await append_events(connection, [entry])
        await store.QUEUE_ONE.execute(connection, webhook, event.id, event.seq, account)
    return event.id


async def replay(pool: asyncpg.Pool, account: UUID, event: UUID, webhook: UUID | None) -> list[UUID]:
    """Post an event once more under the same delivery id: to the active endpoints that had it, or to `webhook`.

    404 for an event that no endpoint of the account had within the time that attempts are kept.
    """
    if webhook is not None and await store.READ.first(pool, account, webhook) is None:
        raise not_found("webhook endpoint")
    found = await store.replay(pool, account, event, webhook)
    if not found:
        raise not_found("webhook delivery")
    return sorted(found)


async def forget_deleted(pool: asyncpg.Pool, at: datetime) -> None:
    """Remove endpoints deleted long ago that nothing is queued for any more."""
    await store.FORGET_DELETED.execute(pool, at - KEPT)


async def _record(
    connection: Conn, account: UUID, kind: AccountEvent, webhook: UUID, actor: str | None, **detail: object
) -> None:
    told = {"id": ids.format_id(ids.Kind.WEBHOOK, webhook), **detail}
    await record_event(connection, account, kind, told, actor=actor)
