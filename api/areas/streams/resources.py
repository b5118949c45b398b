"""Listing, opening and closing message streams."""

from api.areas.streams.schemas import Stream, StreamChange, StreamIn, StreamPage, StreamsQuery
from api.http import if_exists, owner_checks
from api.http.if_exists import Existing
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock
from engine.base.errors import ErrorType, invalid, not_found
from engine.base.list_filters import narrowed
from engine.base.slugs import is_slug
from engine.sending.emails.content_retention import content_hours_of, retains, until_shown
from engine.sending.streams import service as streams_service
from engine.sending.streams import store
from engine.sending.streams.store import StreamRow


async def list_streams(call: Call, query: StreamsQuery) -> StreamPage:
    """Return a page of the account's streams, including the transactional one."""
    pool = call.services.pool
    if query.before is not None:
        known = is_slug(query.before) and await store.READ_SLUG.first(pool, call.account_id, query.before)
        if not known:
            raise invalid("before", "`before` must be the `nextCursor` of an earlier page.")
    slugs = narrowed(None, call.streams)
    page = await store.page(pool, call.account_id, limit=query.limit, before=query.before, slugs=slugs)
    data = [_stream(row) for row in page.rows]
    return StreamPage(data, data[-1].id if page.has_more else None)


async def create_stream(call: Call, body: StreamIn) -> Stream:
    """Open a stream."""

    async def make() -> Stream:
        row = await streams_service.open_stream(
            call.services.pool, call.account_id, slug=body.id, name=body.name,
            content_hours=content_hours_of(retain=body.retain_content, until=body.content_until, default=None),
            actor=call.actor,
        )  # fmt: skip
        return _stream(row)

    return await if_exists.made(call, body, Existing(_read), make)


async def change_stream(call: Call, body: StreamChange) -> Stream:
    """Change how long the stream keeps content; messages accepted before are not affected."""
    slug = call.path["id"]
    if not is_slug(slug):
        raise not_found("stream")
    row = await streams_service.change_stream(
        call.services.pool, call.account_id, slug,
        retain=body.retain_content, until=body.content_until, actor=call.actor,
    )  # fmt: skip
    return _stream(row)


async def delete_stream(call: Call) -> None:
    """Close a stream to new mail; accepted messages are still sent."""
    slug = call.path["id"]
    if not is_slug(slug):
        raise not_found("stream")
    await streams_service.close_stream(call.services.pool, call.account_id, slug, actor=call.actor)


async def _read(call: Call) -> Stream:
    slug = call.path["id"]
    page = await store.page(call.services.pool, call.account_id, limit=1, before=None, slugs=[slug])
    if not page.rows:
        raise not_found("stream")
    return _stream(page.rows[0])


def _stream(row: StreamRow) -> Stream:
    return Stream(
        row.slug,
        row.name,
        row.slug != store.TRANSACTIONAL,
        retains(row.content_hours),
        until_shown(row.content_hours),
        clock.iso(row.created_at),
    )


_KEYS = Area(
    "Streams",
    reads=("streams:read",),
    writes=("streams:write",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.stream,
)
OPERATIONS = (
    Operation("GET", "/v1/streams", list_streams, "List streams", _KEYS, lagging=True),
    Operation(
        "POST",
        "/v1/streams",
        create_stream,
        "Open a stream",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        success=201,
        also=(200,),
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
    Operation(
        "PATCH",
        "/v1/streams/{id}",
        change_stream,
        "Set how long a stream keeps content",
        _KEYS,
        limited_keys=LimitedKeys.OWN_STREAMS,
        note="Applies to messages accepted from now on. A send's own `retainContent` or `contentUntil` comes first.",
    ),
    Operation(
        "DELETE",
        "/v1/streams/{id}",
        delete_stream,
        "Close a stream to new mail",
        _KEYS,
        limited_keys=LimitedKeys.OWN_STREAMS,
        refusals=(ErrorType.INVALID_STATE,),
    ),
)
