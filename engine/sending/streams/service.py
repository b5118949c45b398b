"""Create, change and delete message streams, in one transaction with the event and the cache stamp.

New mail to a deleted stream is refused. Mail accepted before is delivered and keeps the stream's name.
"""

from uuid import UUID

import asyncpg
from msgspec import UnsetType

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.events import AccountEvent
from engine.base.slugs import is_slug, slug_of
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.sending.emails.content_retention import content_hours_of, retains, until_shown
from engine.sending.streams import store
from engine.sending.streams.store import TRANSACTIONAL, StreamRow
from engine.store import caches
from engine.store.database_clock import new_time


async def open_stream(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    slug: str | None,
    name: str | None,
    content_hours: int | None = None,
    actor: str | None = None,
) -> StreamRow:
    """Create a stream; raise the 409 if it exists, the 403 above the plan's limit (which counts the default one).

    `content_hours` is the default of its messages, see `Prepared.content_hours`. Without `slug` the id is made from
    `name`; without `name` the name is the id.
    """
    chosen = _chosen(slug, name)
    async with caches.change(pool, "streams", account) as connection:
        caps = await locked_caps(connection, account)
        known = await store.READ_SLUG.first(connection, account, chosen)
        if known is not None and known.deleted_at is None:
            raise Refusal(
                ErrorType.CONFLICT, f"Your account already has a stream {chosen!r}. Choose another `id`.", id=chosen
            )
        limit = caps.streams
        used = await store.count(connection, account)
        if limit is not None and used >= limit:
            raise limit_reached("streams", "message streams (the transactional one counts)", limit, used)
        row = StreamRow(chosen, name or chosen, content_hours, await new_time(connection))
        await store.INSERT.execute(connection, account, row.slug, row.name, row.content_hours, row.created_at)
        detail = {"id": row.slug, "name": row.name} | _content_detail(row.content_hours)
        await record_event(connection, account, AccountEvent.STREAM_CREATED, detail, actor=actor)
    return row


async def change_stream(
    pool: asyncpg.Pool,
    account: UUID,
    slug: str,
    *,
    retain: bool | None,
    until: int | UnsetType | None,
    actor: str | None = None,
) -> StreamRow:
    """Set how long the stream keeps the content of messages accepted from now on; raise the 404 if there is none.

    `retain` None and `until` UNSET keep what is set.
    """
    async with caches.change(pool, "streams", account) as connection:
        await locked_caps(connection, account)
        row = await store.READ.first(connection, account, slug)
        if row is None:
            raise not_found("stream")
        hours = _changed_hours(row.content_hours, retain=retain, until=until)
        if hours != row.content_hours:
            row.content_hours = hours
            await store.SET_CONTENT_HOURS.execute(connection, account, slug, hours)
            detail = {"id": slug} | _content_detail(hours, always=True)
            await record_event(connection, account, AccountEvent.STREAM_UPDATED, detail, actor=actor)
    return row


def _changed_hours(hours: int | None, *, retain: bool | None, until: int | UnsetType | None) -> int | None:
    if isinstance(until, int):
        return content_hours_of(retain=retain, until=until, default=hours)
    if retain is None:
        return None if hours is None else 0 if until is None else hours
    if retain:
        return None
    return 0 if until is None else hours or 0


def _content_detail(hours: int | None, *, always: bool = False) -> dict[str, object]:
    """Return what an event says of the content's retention; nothing if it is kept, except with `always`."""
    if hours is None and not always:
        return {}
    return {"retain_content": retains(hours), "content_until": until_shown(hours)}


async def close_stream(pool: asyncpg.Pool, account: UUID, slug: str, *, actor: str | None = None) -> None:
    """Delete a stream, so that new mail to it is refused.

    Raises the 404 if there is no such stream, the 409 for the transactional one.
    """
    if slug == TRANSACTIONAL:
        raise Refusal(
            ErrorType.INVALID_STATE,
            "The transactional stream can't be deleted: mail without a stream uses it.",
            state="permanent",
        )
    async with caches.change(pool, "streams", account) as connection:
        await locked_caps(connection, account)
        known = await store.READ_SLUG.first(connection, account, slug)
        if known is None or known.deleted_at is not None:
            raise not_found("stream")
        await store.DELETE.execute(connection, account, slug, clock.now())
        await record_event(connection, account, AccountEvent.STREAM_DELETED, {"id": slug}, actor=actor)


def _chosen(slug: str | None, name: str | None) -> str:
    if name is not None and "\0" in name:
        raise invalid("name", "`name` contains NUL (U+0000). Remove it.")
    if slug is not None:
        if not is_slug(slug):
            raise invalid(
                "id", f"`id` is {slug!r}; use lower-case letters and digits in groups joined by single hyphens."
            )
        return slug
    if not name:
        raise invalid("id", "Give the stream an `id`, a `name`, or both.")
    made = slug_of(name)
    if made is None:
        raise invalid(
            "id",
            "No id can be derived from `name`, which has no ASCII letters or digits. Give the stream an `id` as well.",
        )
    return made
