"""Failed deliveries: the list, counts by class, and the history of an address."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from api.areas.bounces.schemas import (
    AddressEvent,
    AddressEventType,
    AddressHistory,
    AddressSuppression,
    BounceClass,
    BounceClasses,
    BounceFilterQuery,
    BouncePage,
    BouncesQuery,
)
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock, ids
from engine.base.errors import not_found
from engine.mail.address import BadAddress, canonical
from engine.sending.bounces import rules, store
from engine.sending.bounces.types import BounceFilters, BounceRow
from engine.sending.suppressions import store as suppressions
from engine.sending.suppressions.types import Reason, SuppressionRow


class _BouncePayload(Struct):
    detail: dict[str, Any]


_PAYLOAD = msgspec.json.Decoder(_BouncePayload)


async def list_bounces(call: Call, query: BouncesQuery) -> BouncePage:
    """Return a page of the account's bounces."""
    before = rules.cursor(query.before)
    page = await store.page(
        call.services.pool, call.account_id, _filters(call, query), before=before, limit=query.limit
    )
    return BouncePage(list(map(_event, page.rows)), None if page.before is None else str(page.before))


async def count_classes(call: Call, query: BounceFilterQuery) -> BounceClasses:
    """Return the number of bounces by class and scope."""
    found = await store.classes(call.services.pool, call.account_id, _filters(call, query))
    data = [
        BounceClass(
            class_=row.category, scope=row.scope, bounces=row.bounces, suppressed=row.suppressed,
            last_at=clock.iso(row.last_at), diagnostic=row.diagnostic,
        )
        for row in found.rows
    ]  # fmt: skip
    return BounceClasses(data=data, counted=found.counted, complete=found.complete)


async def read_address(call: Call) -> AddressHistory:
    """Return the suppression of an address and what happened to the newest messages to it."""
    try:
        address = rules.address_of(call.path["address"])
    except BadAddress:
        raise not_found("address") from None
    name = canonical(address)
    suppressed = (await suppressions.read(call.services.pool, call.account_id, [name])).get(name)
    rows = await store.history(call.services.pool, call.account_id, address)
    if suppressed is None and not rows:
        raise not_found("address")
    return AddressHistory(
        address=name,
        suppression=None if suppressed is None else _suppression(suppressed),
        removable=suppressed is not None and suppressed.reason != Reason.COMPLAINT,
        data=list(map(_event, rows)),
    )


def _filters(call: Call, query: BounceFilterQuery) -> BounceFilters:
    return rules.filters(
        type=query.type,
        category=query.class_,
        scope=query.scope,
        recipient_domain=query.recipient_domain,
        domain=query.domain,
        stream=query.stream,
        since=query.from_,
        until=query.until,
        visible_domains=call.domains,
        visible_streams=call.streams,
    )


def _suppression(row: SuppressionRow) -> AddressSuppression:
    return AddressSuppression(
        reason=Reason(row.reason),
        detail=row.detail,
        message_id=None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id),
        created_at=clock.iso(row.created_at),
    )


def _event(row: BounceRow) -> AddressEvent:
    detail = _PAYLOAD.decode(row.payload).detail
    return AddressEvent(
        id=ids.format_id(ids.Kind.EVENT, row.id),
        type=cast("AddressEventType", row.type),
        message_id=None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id),
        address=detail.get("recipient") or detail.get("address") or "",
        class_=detail.get("class"),
        scope=detail.get("scope"),
        smtp_code=detail.get("smtp_code"),
        enhanced_code=detail.get("enhanced_code"),
        diagnostic=detail.get("diagnostic") or detail.get("reason"),
        mx=detail.get("mx"),
        attempt=detail.get("attempt"),
        late=detail.get("late", False),
        suppressed=detail.get("suppressed", row.type == "suppressed"),
        from_domain=row.from_domain,
        stream=row.stream,
        occurred_at=clock.iso(row.occurred_at),
    )


_KEYS = Area("Suppressions", reads=("messages:read",), limited_keys=LimitedKeys.OWN)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/bounces",
        list_bounces,
        "List bounces",
        _KEYS,
        note=("Deliveries that were rejected permanently or given up, newest first, as long as their events are kept."),
        lagging=True,
    ),
    Operation("GET", "/v1/bounces/classes", count_classes, "Count bounces by class", _KEYS, lagging=True),
    Operation(
        "GET",
        "/v1/bounces/{address}",
        read_address,
        "Read the delivery history of an address",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
    ),
)
