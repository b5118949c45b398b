"""Listing, opening and closing message streams."""

from api.areas.streams.schemas import Stream, StreamIn, StreamPage, StreamsQuery
from api.http import owner_checks
from api.http.operation import Access, Call, LimitedKeys, Operation
from engine.base import clock
from engine.base.errors import ErrorType, invalid, not_found
from engine.base.list_filters import narrowed
from engine.base.slugs import is_slug
from engine.sending.streams import service as streams_service
from engine.sending.streams import store
from engine.sending.streams.store import StreamRow


async def list_streams(call: Call) -> StreamPage:
    """Return a page of the account's streams, including the transactional one."""
    query: StreamsQuery = call.query
    pool = call.services.pool
    if query.before is not None:
        known = is_slug(query.before) and await store.READ_SLUG.first(pool, call.account_id, query.before)
        if not known:
            raise invalid("before", "`before` must be the `nextCursor` of an earlier page.")
    slugs = narrowed(None, call.streams)
    page = await store.page(pool, call.account_id, limit=query.limit, before=query.before, slugs=slugs)
    data = [_stream(row) for row in page.rows]
    return StreamPage(data, data[-1].id if page.has_more else None)


async def create_stream(call: Call) -> Stream:
    """Open a stream."""
    body: StreamIn = call.body
    row = await streams_service.open_stream(
        call.services.pool, call.account_id, slug=body.id, name=body.name, actor=call.actor
    )
    return _stream(row)


async def delete_stream(call: Call) -> None:
    """Close a stream to new mail; accepted messages are still sent."""
    slug = call.path["id"]
    if not is_slug(slug):
        raise not_found("stream")
    await streams_service.close_stream(call.services.pool, call.account_id, slug, actor=call.actor)


def _stream(row: StreamRow) -> Stream:
    return Stream(row.slug, row.name, row.slug != store.TRANSACTIONAL, clock.iso(row.created_at))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/streams",
        tag="Streams",
        summary="List streams",
        access=Access.KEY,
        limited_keys=LimitedKeys.OWN,
        scopes=("streams:read",),
        query=StreamsQuery,
        reply=StreamPage,
        handler=list_streams,
    ),
    Operation(
        method="POST",
        path="/v1/streams",
        tag="Streams",
        summary="Open a stream",
        access=Access.KEY,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        scopes=("streams:write",),
        request=StreamIn,
        reply=Stream,
        success=201,
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
        handler=create_stream,
    ),
    Operation(
        method="DELETE",
        path="/v1/streams/{id}",
        tag="Streams",
        summary="Close a stream to new mail",
        access=Access.KEY,
        limited_keys=LimitedKeys.OWN_STREAMS,
        owner_check=owner_checks.stream,
        scopes=("streams:write",),
        success=204,
        refusals=(ErrorType.INVALID_STATE,),
        handler=delete_stream,
    ),
)
