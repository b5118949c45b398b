"""`GET /v1/api-keys`."""

from datetime import datetime

from api.areas.api_keys.schemas import ApiKey, ApiKeyPage, KeysQuery
from api.http.dispatch import cursor_id
from api.http.operation import Access, Call, Operation
from engine.areas.api_keys import rules, store
from engine.base import clock, ids


async def list_keys(call: Call) -> ApiKeyPage:
    """A page of the account's keys, revoked ones included."""
    query: KeysQuery = call.query
    before = cursor_id(ids.Kind.API_KEY, query.before)
    rows = await store.LIST.fetch(call.services.pool, call.account_id, before, query.limit + 1)
    data = [_shown(row) for row in rows[: query.limit]]
    return ApiKeyPage(data, data[-1].id if len(rows) > query.limit else None)


def _shown(row: store.KeyListRow) -> ApiKey:
    return ApiKey(
        ids.format_id(ids.Kind.API_KEY, row.id),
        row.name,
        row.scopes,
        rules.hint(row.key_id),
        clock.iso(row.created_at),
        _iso(row.last_used_at),
        _iso(row.revoked_at),
    )


def _iso(at: datetime | None) -> str | None:
    return None if at is None else clock.iso(at)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/api-keys",
        tag="API keys",
        summary="List API keys",
        access=Access.KEY,
        scopes=("account:read",),
        query=KeysQuery,
        reply=ApiKeyPage,
        handler=list_keys,
    ),
)
