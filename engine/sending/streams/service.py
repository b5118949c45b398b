"""Create and delete message streams, in one transaction with the event and the cache stamp.

New mail to a deleted stream is refused. Mail accepted before is delivered and keeps the stream's name.
"""

from uuid import UUID

import asyncpg

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.events import AccountEvent
from engine.base.slugs import is_slug, slug_of
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.sending.streams import store
from engine.sending.streams.store import TRANSACTIONAL, StreamRow
from engine.store import caches
from engine.store.database_clock import new_time


async def open_stream(
    pool: asyncpg.Pool, account: UUID, *, slug: str | None, name: str | None, actor: str | None = None
) -> StreamRow:
    """Create a stream; raise the 409 if it exists, the 403 above the plan's limit (which counts the default one).

    Without `slug` the id is made from `name`; without `name` the name is the id.
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
        row = StreamRow(chosen, name or chosen, await new_time(connection))
        await store.INSERT.execute(connection, account, row.slug, row.name, row.created_at)
        await record_event(
            connection, account, AccountEvent.STREAM_CREATED, {"id": row.slug, "name": row.name}, actor=actor
        )
    return row


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
