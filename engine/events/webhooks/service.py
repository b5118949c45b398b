"""Create, change, remove and test webhook endpoints, and replay events to them.

Every change is one transaction with its event in the account's log. The statement that writes an event also selects
the endpoints that receive it, so a change takes effect with its commit.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids, secrets
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.secrets import Pepper, Unsealable
from engine.base.settings import Settings
from engine.events.webhooks import post_options, rules, standard, store
from engine.events.webhooks.post_options import PostOptions
from engine.events.webhooks.types import EndpointRow, HeadersRow
from engine.ledger import log
from engine.ledger.events import append_events, record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.store import partitions
from engine.store.database_clock import new_id
from engine.store.jobs import Job
from engine.store.queries import Conn

KEPT = timedelta(days=30)  # records of posts, and deleted endpoints
NO_OPTIONS = PostOptions()
_PURPOSE = "webhook secrets"


class NewEndpoint(Struct, frozen=True):
    """An endpoint just created; `secret` is never shown again."""

    row: EndpointRow
    secret: str


class NewSecret(Struct, frozen=True):
    """A new secret; the previous one signs a second header until `previous_until`."""

    secret: str
    previous_until: datetime


Names = tuple[list[str] | None, list[str] | None]  # of domains and of streams


def secret_key(pepper: Pepper) -> secrets.DerivedKey:
    """Return the key that seals signing secrets."""
    return secrets.derived(pepper, _PURPOSE)


async def create(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    url: str,
    event_types: Sequence[str],
    pepper: Pepper,
    description: str = "",
    options: PostOptions = NO_OPTIONS,
    actor: str | None = None,
    is_unique: bool = False,
    visible: Names = (None, None),
) -> NewEndpoint:
    """Create an active endpoint; raise the 400 for unusable fields and the 403 above the plan's limit.

    With `is_unique` raises the 409 if the URL has an endpoint that gets events of the domains and streams in `visible`
    alone (None: all).
    """
    checked, wanted = rules.checked_url(url), rules.checked_types(event_types)
    secret, described = standard.new_secret(), rules.checked_description(description)
    options = options.checked()
    domains, streams = list(options.domains or ()), list(options.streams or ())
    signatures = list(options.signatures or (standard.WAYBILL,))
    async with pool.acquire() as connection, connection.transaction():
        caps = await locked_caps(connection, account)
        if is_unique:
            await _refuse_url(connection, account, checked, visible)
        limit, used = caps.webhooks, await store.count(connection, account)
        if limit is not None and used >= limit:
            raise limit_reached("webhooks", "webhook endpoints", limit, used)
        webhook = await new_id(connection)
        sealed = secrets.seal(secret_key(pepper), secret.encode(), webhook.bytes)
        headers = post_options.sealed_headers(options.headers or {}, None, post_options.headers_key(pepper), webhook)
        await store.INSERT.execute(
            connection, webhook, account, checked, wanted, sealed, described, domains, streams, headers.header_names,
            headers.sealed_headers, options.include_metadata or False,
        )  # fmt: skip
        await _set_signatures_and_retries(connection, account, webhook, signatures, options.honor_retry_after)
        row = await store.READ.first(connection, account, webhook)
        assert row is not None
        detail = {"url": checked, "event_types": wanted} | _shown(row)
        await _record(connection, account, AccountEvent.WEBHOOK_CREATED, webhook, actor, **detail)
    return NewEndpoint(row, secret)


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    webhook: UUID,
    *,
    url: str | None,
    event_types: Sequence[str] | None,
    status: str | None,
    pepper: Pepper,
    description: str | None = None,
    options: PostOptions = NO_OPTIONS,
    actor: str | None = None,
) -> EndpointRow:
    """Change the values that are not None and return the endpoint; queued posts go to the new URL with the new headers.

    Filters decide on events that occur from then on. Raises the 404, the 400 for unusable fields, and the 409 for
    a secret or headers that the change can't use.
    """
    checked = None if url is None else rules.checked_url(url)
    wanted = None if event_types is None else rules.checked_types(event_types)
    described = None if description is None else rules.checked_description(description)
    options = options.checked()
    domains, streams, signatures = [
        None if one is None else list(one) for one in (options.domains, options.streams, options.signatures)
    ]
    given: dict[str, object] = {"url": checked, "event_types": wanted, "status": status, "description": described}
    given |= {"domains": domains, "streams": streams, "include_metadata": options.include_metadata}
    given |= {"signatures": signatures, "honor_retry_after": options.honor_retry_after}
    changed = {name: value for name, value in given.items() if value is not None}
    async with pool.acquire() as connection, connection.transaction():
        names, sealed = None, None
        if options.headers is not None:
            stored = await store.LOCK_HEADERS.first(connection, account, webhook)
            if stored is None:
                raise not_found("webhook endpoint")
            headers = _with_headers(options.headers, stored, pepper, webhook)
            names, sealed = headers.header_names, headers.sealed_headers
            changed["header_names"] = names
        if signatures is not None and standard.STANDARD in signatures:
            await _check_secret(connection, account, webhook, pepper)
        await _set_signatures_and_retries(connection, account, webhook, signatures, options.honor_retry_after)
        row = await store.CHANGE.first(
            connection, account, webhook, checked, wanted, status, described, domains, streams, names, sealed,
            options.include_metadata,
        )  # fmt: skip
        if row is None:
            raise not_found("webhook endpoint")
        if changed:
            await _record(connection, account, AccountEvent.WEBHOOK_UPDATED, webhook, actor, **changed)
    return row


async def rotate(
    pool: asyncpg.Pool, account: UUID, webhook: UUID, *, pepper: Pepper, at: datetime, actor: str | None = None
) -> NewSecret:
    """Create a new signing secret; the previous one signs a second header for 24 hours."""
    secret, until = standard.new_secret(), at + timedelta(hours=rules.PREVIOUS_HOURS)
    sealed = secrets.seal(secret_key(pepper), secret.encode(), webhook.bytes)
    async with pool.acquire() as connection, connection.transaction():
        if await store.ROTATE.execute(connection, account, webhook, sealed, until) == "UPDATE 0":
            raise not_found("webhook endpoint")
        await _record(
            connection, account, AccountEvent.WEBHOOK_ROTATED, webhook, actor, previous_until=clock.iso(until)
        )
    return NewSecret(secret, until)


async def remove(pool: asyncpg.Pool, account: UUID, webhook: UUID, *, actor: str | None = None) -> None:
    """Delete the endpoint. Posts that are queued already are still made."""
    async with pool.acquire() as connection, connection.transaction():
        await remove_within(connection, account, webhook, actor=actor)


async def remove_within(connection: Conn, account: UUID, webhook: UUID, *, actor: str | None) -> None:
    """Delete the endpoint in the caller's transaction, as `remove` does."""
    if not await store.DELETE.records(connection, account, webhook):
        raise not_found("webhook endpoint")
    await _record(connection, account, AccountEvent.WEBHOOK_DELETED, webhook, actor)


async def try_out(pool: asyncpg.Pool, account: UUID, webhook: UUID, at: datetime, *, actor: str | None = None) -> UUID:
    """Post a `webhook.test` event to this endpoint, even a disabled one; return the event id."""
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
    """Post an event again under the same delivery id, to the active endpoints that received it or to `webhook`.

    Raises the 404 if no endpoint of the account received the event while its attempts are stored.
    """
    if webhook is not None and await store.READ.first(pool, account, webhook) is None:
        raise not_found("webhook endpoint")
    found = await store.replay(pool, account, event, webhook)
    if not found:
        raise not_found("webhook delivery")
    return sorted(found)


async def forget_deleted(pool: asyncpg.Pool, at: datetime) -> None:
    """Remove endpoints deleted before the retention time that have no queued posts."""
    await store.FORGET_DELETED.execute(pool, at - KEPT)


async def _forget_old(pool: asyncpg.Pool, _: Settings) -> None:
    async with pool.acquire() as connection:
        await partitions.drop_before(connection, "webhook_attempts", clock.now() - KEPT)
    await store.FORGET_HOURS.execute(pool, clock.now() - KEPT)
    await forget_deleted(pool, clock.now())


JOB = Job("webhook history", every_s=3600, run=_forget_old)


async def _refuse_url(connection: Conn, account: UUID, url: str, visible: Names) -> None:
    known = await store.FIND_URL.first(connection, account, url, *visible)
    if known is not None:
        raise Refusal(
            ErrorType.CONFLICT,
            f"You already have an endpoint for {url}. Change that one.",
            id=ids.format_id(ids.Kind.WEBHOOK, known.id),
        )


def _with_headers(given: Mapping[str, str | None], stored: HeadersRow, pepper: Pepper, webhook: UUID) -> HeadersRow:
    """Return the headers after a change. Raises the 409 if those that stay can't be unsealed."""
    try:
        return post_options.sealed_headers(given, stored, post_options.headers_key(pepper), webhook)
    except Unsealable:
        raise Refusal(
            ErrorType.CONFLICT,
            "The stored headers of this endpoint can't be read because WAYBILL_KEY_PEPPER has changed. Send all of "
            f"them again: {', '.join(stored.header_names)}.",
        ) from None


async def _set_signatures_and_retries(
    connection: Conn,
    account: UUID,
    webhook: UUID,
    signatures: list[str] | None,
    honor: bool | None,  # noqa: FBT001 - a column
) -> None:
    """Set what is given; None keeps a value."""
    if signatures is not None or honor is not None:
        await store.CHANGE_SIGNATURES_AND_RETRIES.execute(connection, account, webhook, signatures, honor)


async def _check_secret(connection: Conn, account: UUID, webhook: UUID, pepper: Pepper) -> None:
    """Lock the endpoint; raise the 409 unless its secret can sign as Standard Webhooks says, and the 404."""
    stored = await store.LOCK_SECRET.first(connection, account, webhook)
    if stored is None:
        raise not_found("webhook endpoint")
    try:
        secret = secrets.unseal(secret_key(pepper), stored.sealed_secret, webhook.bytes).decode()
    except Unsealable:
        secret = ""
    if standard.key_of(secret) is None:
        raise Refusal(
            ErrorType.CONFLICT,
            "The signing secret isn't `whsec_` and base64, as `standard` requires. Rotate it with POST "
            f"/v1/webhooks/{ids.format_id(ids.Kind.WEBHOOK, webhook)}/rotate first.",
        )


def _shown(row: EndpointRow) -> dict[str, list[str] | bool]:
    """Return those of the options that a new endpoint has, for the account log."""
    given: dict[str, list[str] | bool] = {
        "domains": row.domains, "streams": row.streams, "header_names": row.header_names,
        "include_metadata": row.include_metadata, "honor_retry_after": row.honor_retry_after,
        "signatures": row.signatures if standard.STANDARD in row.signatures else [],
    }  # fmt: skip
    return {name: value for name, value in given.items() if value}


async def _record(
    connection: Conn, account: UUID, kind: AccountEvent, webhook: UUID, actor: str | None, **detail: object
) -> None:
    event_detail = {"id": ids.format_id(ids.Kind.WEBHOOK, webhook), **detail}
    await record_event(connection, account, kind, event_detail, actor=actor)
