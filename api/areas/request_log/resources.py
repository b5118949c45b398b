"""`GET /v1/requests`: the requests of the last days."""

from datetime import datetime

from api.areas.request_log.schemas import LoggedRequest, RequestPage, RequestsQuery
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.accounts.request_log import rules, store
from engine.accounts.request_log.types import RequestRow
from engine.base import clock, ids
from engine.base.errors import unavailable


async def list_requests(call: Call, query: RequestsQuery, page: Page) -> RequestPage:
    """Return a page of the account's requests."""
    wanted = rules.filters(
        at=clock.now(),
        before=page.before,
        status=query.status,
        key=query.key,
        method=query.method,
        path=query.path,
        error_type=query.error_type,
        by=query.by,
        since=query.from_,
        until=query.until,
    )
    try:
        rows = await store.page(call.services.pool, call.account_id, wanted, limit=page.probe)
    except TimeoutError:
        raise rules.too_slow(wanted) or unavailable() from None
    return RequestPage(*page.of(rows, _shown))


def _shown(row: RequestRow) -> LoggedRequest:
    at: datetime = clock.at_milliseconds(ids.milliseconds_of(row.id))
    return LoggedRequest(
        id=ids.format_id(ids.Kind.REQUEST, row.id),
        created_at=clock.iso(at),
        method=row.method,
        path=row.path,
        status=row.status,
        ms=row.microseconds / 1000,
        key_id=None if row.key_id is None else ids.format_id(ids.Kind.API_KEY, row.key_id),
        user_id=None if row.user_id is None else ids.format_id(ids.Kind.USER, row.user_id),
        request_id=row.request_id,
        error_type=row.error_type,
        agent=row.agent,
    )


_KEYS = Area("Account", reads=("account:read",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/requests",
        list_requests,
        f"List the API requests of the last {rules.KEPT.days} days",
        _KEYS,
        page=ids.Kind.REQUEST,
        note="Every request with a valid key or session is listed about a second after its response, refused "
        "ones too, without query, headers and bodies; mail over SMTP is not. The log is for finding "
        "mistakes: a crash of the service may lose the last second of it, and a flood of requests is "
        "recorded in part. Requests are listed by the time of their answer, newest first, so one may "
        "appear below another that was listed before.",
        lagging=True,
    ),
)
