"""`POST /v1/messages/{id}/resend` and `POST /v1/messages/resend`: send messages again, as new ones."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.areas.emails.resources import refused_item, send_reply
from api.areas.emails.schemas import ItemError, SendReply
from api.http import item_errors
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.sending.emails.limits import IDEMPOTENCY_DAYS, MAX_MESSAGES
from engine.sending.emails.types import SEND_REFUSALS, Accepted, MinTls
from engine.sending.preparation import Origin
from engine.sending.resend import MAX_KEY, ResendOrder, resend

AskedTls = Annotated[
    MinTls | None,
    Meta(description="As of `POST /v1/emails`. What the first send asked for is not kept: give it again"),
]


class MessageResend(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """How to send a message again; the body may be left out."""

    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(description=f"As of `POST /v1/emails`: remembered for {IDEMPOTENCY_DAYS} days"),
    ] = None
    min_tls: AskedTls = None


class BulkMessageResend(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Messages to send again, each accepted or refused on its own."""

    ids: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(min_length=1, max_length=MAX_MESSAGES)]
    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_KEY)] | None,
        Meta(
            description="Covers each message separately: a repeated request sends again only those that were refused "
            "before"
        ),
    ] = None
    min_tls: AskedTls = None


class ResendItem(Struct, rename="camel", kw_only=True):
    """The result for the message `resentFrom`: the `id` of the new message, or the `error` of a single request."""

    index: int
    resent_from: str
    id: str | UnsetType = UNSET
    status: Literal["queued", "scheduled", "duplicate", "refused"]
    body_differs: bool | UnsetType = UNSET
    error: ItemError | UnsetType = UNSET


class BulkResendReply(Struct):
    """The result of a bulk request: an entry for each message, in its order, and the count of each result."""

    data: list[ResendItem]
    accepted: int
    duplicates: int
    refused: int


async def resend_one(call: Call, body: MessageResend) -> SendReply:
    """Send a message again; answer 202 for a new one, 200 for a replay of an idempotency key."""
    (decision,) = await resend(
        call.services.pool,
        call.services.acceptor,
        [ResendOrder(call.id, body.idempotency_key, body.min_tls)],
        _origin(call),
        max_bytes=call.settings.max_request_bytes,
    )
    if isinstance(decision, Refusal):
        raise decision
    return send_reply(call, decision)


async def resend_many(call: Call, body: BulkMessageResend) -> BulkResendReply:
    """Send up to MAX_MESSAGES messages again, in one commit."""
    _check_once(body.ids)
    known = [_order(text, body) for text in body.ids]
    orders = [one for one in known if isinstance(one, ResendOrder)]
    decisions = iter(
        await resend(
            call.services.pool,
            call.services.acceptor,
            orders,
            _origin(call),
            max_bytes=call.settings.max_request_bytes,
        )
    )
    data = [
        _item(index, body.ids[index], next(decisions) if isinstance(one, ResendOrder) else one)
        for index, one in enumerate(known)
    ]
    item_errors.link(call, data)
    refused = sum(1 for one in data if one.status == "refused")
    duplicates = sum(1 for one in data if one.status == "duplicate")
    return BulkResendReply(data, len(data) - refused - duplicates, duplicates, refused)


def _origin(call: Call) -> Origin:
    return Origin(call.account_id, "api", call.reach, traceparent=call.traceparent)


def _check_once(texts: list[str]) -> None:
    for index, text in enumerate(texts):
        if text in texts[:index]:
            raise invalid(f"ids[{index}]", f"`ids` contains {text[:100]!r} twice. Give each message once.")


def _order(text: str, body: BulkMessageResend) -> ResendOrder | Refusal:
    try:
        message = ids.parse_id(ids.Kind.MESSAGE, text)
    except ids.WrongId:
        return not_found("message")
    key = None if body.idempotency_key is None else f"{body.idempotency_key}:{text}"
    return ResendOrder(message, key, body.min_tls)


def _item(index: int, message: str, decision: Accepted | Refusal) -> ResendItem:
    if isinstance(decision, Refusal):
        error: dict[str, Any] = refused_item(decision)
        return ResendItem(index=index, resent_from=message, status="refused", error=error)
    item = ResendItem(index=index, resent_from=message, id=decision.id, status=decision.status)
    if decision.body_differs:
        item.body_differs = True
    return item


_NOTE = (
    "Content, recipients, stream, tags, metadata and template are those of the first message; Date and Message-ID are "
    "new, and the new message's `resentFrom` names the first. It is checked and counted as any send: the sender's "
    "domain must be verified, and a recipient suppressed since then refuses it. A message that is scheduled, queued or "
    "sending, a verification, a forwarded message, and one whose content was erased are 409 `invalid_state`. A link to "
    "unsubscribe stays the one of the first message."
)

_KEYS = Area("Messages", writes=("emails:send",), limited_keys=LimitedKeys.OWN, id_of=ids.Kind.MESSAGE)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/messages/{id}/resend",
        resend_one,
        "Send a message again, as a new message",
        _KEYS,
        note=_NOTE,
        success=202,
        also=(200,),
        refusals=(ErrorType.INVALID_STATE, *SEND_REFUSALS),
    ),
    Operation(
        "POST",
        "/v1/messages/resend",
        resend_many,
        f"Send up to {MAX_MESSAGES} messages again, each accepted or refused on its own",
        _KEYS,
        note="As `POST /v1/messages/{id}/resend` for each of `ids`, with an outcome each; an unknown id is refused as "
        "`not_found`.",
    ),
)
