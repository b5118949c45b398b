"""Deliveries of webhook endpoints: listing, exact requests and answers, and replays."""

from datetime import UTC, datetime
from typing import cast
from uuid import UUID

from api.areas.webhooks.schemas import (
    Attempt,
    DeliveriesQuery,
    Delivery,
    DeliveryPage,
    ExactDelivery,
    Header,
    PostExchange,
    Queued,
    ReplayRequest,
    ReplayWindow,
    WindowReplayed,
)
from api.http import owner_checks
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from api.http.path_ids import cursor_id
from engine.base import clock, ids
from engine.base.errors import ErrorType, invalid
from engine.base.list_filters import FIRST_ID, LAST_ID, first_id, without_nul
from engine.events.webhooks import deliveries, rules
from engine.events.webhooks import service as webhooks_service
from engine.events.webhooks.deliveries import DeliveryFilter, DeliveryState
from engine.events.webhooks.types import AttemptRow, DeliveryRow, ExchangeRow, StoredEventRow
from engine.receiving.inbound_routes.post_bodies import PostBodies


async def list_deliveries(call: Call, query: DeliveriesQuery, page: Page) -> DeliveryPage:
    """Return a page of an endpoint's deliveries, finished and pending."""
    wanted = _filter(query.state, query.type, query.from_, query.until, page.before)
    found = await deliveries.page(call.services.pool, call.account_id, call.id, wanted, limit=page.limit)
    return DeliveryPage([_delivery(row) for row in found.rows], _public(found.next_below))


async def read_delivery(call: Call) -> ExactDelivery:
    """Return one delivery with the exact request and answer of each attempt."""
    found = await deliveries.read(call.services.pool, call.account_id, call.id, call.inner_id)
    body = None if found.event is None else await _body(call, call.inner_id, found.event)
    return ExactDelivery(
        delivery=_delivery(found.row),
        body=None if body is None else body.decode(),
        exchanges=[_exchange(one, call.inner_id, body) for one in found.exchanges],
    )


async def replay(call: Call, body: ReplayRequest) -> Queued:
    """Post an event again under the same delivery id."""
    found = await webhooks_service.replay(call.services.pool, call.account_id, call.id, _wanted(body))
    public = [ids.format_id(ids.Kind.WEBHOOK, one) for one in found]
    return Queued(ids.format_id(ids.Kind.EVENT, call.id), public)


async def replay_window(call: Call, body: ReplayWindow) -> WindowReplayed:
    """Post the deliveries of a window of time again."""
    before = cursor_id(ids.Kind.EVENT, body.before)
    wanted = _filter(body.state, body.type, body.from_, body.until, before)
    done = await deliveries.replay_window(call.services.pool, call.account_id, call.id, wanted, limit=body.limit)
    return WindowReplayed(done.queued, _public(done.next_below))


def _filter(
    state: str | None, kind: str | None, since: str | None, until: str | None, before: UUID | None
) -> DeliveryFilter:
    high = LAST_ID if until is None else first_id("until", until)
    return DeliveryFilter(
        low=FIRST_ID if since is None else first_id("from", since),
        high=high if before is None else min(high, before),
        state=state,
        type=None if kind is None else without_nul("type", kind),
    )


async def _body(call: Call, event: UUID, stored: StoredEventRow) -> bytes:
    """Return the octets that an attempt posts now: included bodies or tags may have been erased since the last one."""
    payload = stored.payload
    if payload.startswith(rules.RECEIVED):
        payload = await PostBodies(call.services.pool).completed(call.account_id, payload)
    return rules.body(event, stored.seq, stored.occurred_at, payload, tags=stored.tags, metadata=stored.metadata)


def _wanted(body: ReplayRequest) -> UUID | None:
    if body.webhook_id is None:
        return None
    try:
        return ids.parse_id(ids.Kind.WEBHOOK, body.webhook_id)
    except ids.WrongId as error:
        raise invalid("webhookId", f"`webhookId` is not the id of a webhook endpoint: {error}.") from None


def _public(event: UUID | None) -> str | None:
    return None if event is None else ids.format_id(ids.Kind.EVENT, event)


def _exchange(row: ExchangeRow, event: UUID, body: bytes | None) -> PostExchange:
    sent = None
    if row.url is not None and row.signature is not None:
        found = rules.sent_headers(
            body, url=row.url, event_id=event, attempt=row.attempt, signed=row.signature,
            signed_before=row.signature_previous, signed_standard=row.signature_standard,
        )  # fmt: skip
        sent = [Header(name, value) for name, value in found.items()]
    heard = None
    if row.answer_headers is not None:
        parts = [line.partition(": ") for line in row.answer_headers.split("\n") if line]
        heard = [Header(name, value) for name, _, value in parts]
    return PostExchange(row.attempt, row.url, sent, row.status_code, heard, row.answer)


def _delivery(row: DeliveryRow) -> Delivery:
    attempts = [AttemptRow(*fields) for fields in row.attempts]
    last = attempts[-1] if attempts else None
    state = "pending"
    if row.due_at is None:
        state = "delivered" if last is not None and last.delivered else "failed"
    made = row.occurred_at or datetime.fromtimestamp(ids.milliseconds_of(row.event_id) / 1000, UTC)
    return Delivery(
        id=ids.format_id(ids.Kind.EVENT, row.event_id),
        type=row.type,
        message_id=None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id),
        recipient=row.recipient,
        subject=row.subject,
        created_at=clock.iso(made),
        state=cast("DeliveryState", state),
        attempt=0 if last is None else last.attempt,
        status_code=None if last is None else last.status_code,
        milliseconds=None if last is None else last.milliseconds,
        answer=row.answer,
        error=None if last is None else last.error,
        next_attempt_at=None if row.due_at is None else clock.iso(row.due_at),
        attempts=[
            Attempt(one.attempt, clock.iso(one.started_at), one.status_code, one.milliseconds, one.error)
            for one in attempts
        ],
    )


_KEYS = Area(
    "Webhooks",
    reads=("webhooks:read",),
    writes=("webhooks:write",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.webhook,
    id_of=ids.Kind.WEBHOOK,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/webhooks/{id}/deliveries",
        list_deliveries,
        "List the deliveries of a webhook endpoint",
        _KEYS,
        page=ids.Kind.EVENT,
        note="Deliveries are listed by the time of their event, newest first. A delivery appears when its event is "
        "stored, so a new one may appear below another that was listed before. To miss no event, follow "
        "`GET /v1/events?after=`: the log has no gaps. A page that is filtered by `state` or `type` looks at "
        f"{deliveries.MAX_SCANNED} deliveries, so it may be short, even empty, while `nextCursor` is not null.",
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/webhooks/{id}/deliveries/{event}",
        read_delivery,
        "Read the exact requests and responses of a delivery",
        _KEYS,
        inner_id_of=ids.Kind.EVENT,
        note="The body is the same on every attempt, and is shown octet by octet as it is posted. With "
        "`includeMetadata` it follows the endpoint's present setting and the message's present tags. Of a "
        f"response, the first {rules.MAX_ANSWER_HEADERS:,} characters of headers and "
        f"{rules.MAX_ANSWER_BYTES:,} octets of the body are kept.",
    ),
    Operation(
        "POST",
        "/v1/webhooks/deliveries/{id}/replay",
        replay,
        "Post an event again",
        _KEYS,
        id_of=ids.Kind.EVENT,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        success=202,
    ),
    Operation(
        "POST",
        "/v1/webhooks/{id}/replay",
        replay_window,
        "Post the deliveries of a window of time again",
        _KEYS,
        note="Each delivery is posted under its previous delivery id, with a new retry schedule; receivers that "
        "compare `Service-Delivery-Id` process it once. With the state `pending`, deliveries that wait for "
        "a retry are posted now, and keep their retry schedule. A repeated call queues nothing twice. One "
        f"call queues at most {deliveries.MAX_REPLAYED:,} deliveries, newest first; while `nextCursor` is "
        "not null, repeat the call with it as `before`.",
        success=202,
        refusals=(ErrorType.NOT_FOUND,),
    ),
)
