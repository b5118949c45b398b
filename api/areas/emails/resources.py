"""`POST /v1/emails`, `POST /v1/emails/batch`, and changing or cancelling a scheduled message."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, structs

from api.areas.emails.dry_run import dry_run, foreseen
from api.areas.emails.forecasts import forecast_of
from api.areas.emails.schemas import (
    BatchItem,
    BatchReply,
    BatchRequest,
    CancelReply,
    DryRunReply,
    EmailRequest,
    ForeseenMessage,
    RescheduleReply,
    RescheduleRequest,
    SendReply,
    SendRequest,
)
from api.http import item_errors, owner_checks
from api.http.decode import LARGE_BYTES, decode_body
from api.http.operation import TRACEPARENT, Area, Call, LimitedKeys, Operation
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.sending.cancel_schedule import cancel_schedule
from engine.sending.emails.limits import MAX_MESSAGES
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.types import SEND_REFUSALS, Accepted, Checked
from engine.sending.preparation import Origin
from engine.sending.reschedule import reschedule

_ITEM = msgspec.json.Decoder(SendRequest)


async def send(call: Call, body: EmailRequest) -> SendReply | DryRunReply:
    """Accept one email; answer 202 for a new one, 200 for a replay of an idempotency key and for a dry run."""
    if body.dry_run is None and body.forecast is None:
        return await accepted(call, body, _origin(call))
    # No part of the message: a send that follows with the same key has the same content.
    is_dry, is_forecast, body = body.dry_run, body.forecast, structs.replace(body, dry_run=None, forecast=None)
    if is_dry:
        return await dry_run(call, body, _origin(call))
    return await accepted(call, body, _origin(call), forecast=bool(is_forecast))


async def accepted(
    call: Call, message: SendRequest | Submitted, origin: Origin, *, forecast: bool = False
) -> SendReply:
    """Accept one message; return its reply, with a forecast if asked."""
    acceptor = call.services.acceptor
    checked = await acceptor.preparer.check(message, origin)
    decision = await acceptor.accept(checked)
    reply = send_reply(call, decision)
    if forecast:
        reply.forecast = await forecast_of(call, checked, decision)
    return reply


def send_reply(call: Call, decision: Accepted) -> SendReply:
    """Return the reply of a send; a replay of an idempotency key gets the status 200."""
    reply = SendReply(decision.id, decision.status)
    if decision.status == "duplicate":
        call.status = 200
        if decision.body_differs:
            reply.body_differs = True
    return reply


async def send_batch(call: Call, body: BatchRequest) -> BatchReply:
    """Accept up to MAX_MESSAGES emails, each on its own, in one commit."""
    items = body.messages
    if call.body_bytes > LARGE_BYTES:
        requests = await asyncio.to_thread(_decoded, items)
    else:
        requests = _decoded(items)
    if body.dry_run:
        data = [_foreseen_item(index, one) for index, one in enumerate(await foreseen(call, requests, _origin(call)))]
    else:
        acceptor = call.services.acceptor
        checked = await acceptor.preparer.check_all(requests, _origin(call))
        decisions = await acceptor.accept_set(checked)
        data = [_item(index, decision) for index, decision in enumerate(decisions)]
        if body.forecast:
            await _add_forecasts(call, data, checked, decisions)
    item_errors.link(call, data)
    refused = sum(1 for one in data if one.status == "refused")
    duplicates = sum(1 for one in data if one.status == "duplicate")
    reply = BatchReply(data=data, accepted=len(data) - refused - duplicates, duplicates=duplicates, refused=refused)
    if body.dry_run:
        reply.dry_run = True
    return reply


async def cancel(call: Call) -> CancelReply:
    """Cancel a scheduled message; 409 if its release has begun."""
    await cancel_schedule(call.services.pool, call.account_id, call.id, actor=call.actor)
    return CancelReply(call.path["id"])


async def move(call: Call, body: RescheduleRequest) -> RescheduleReply:
    """Give a scheduled message another time; 409 if its release has begun."""
    at = await reschedule(
        call.services.pool, call.account_id, call.id, body.scheduled_at,
        give_up_s=call.settings.give_up_s, pepper=call.settings.pepper, actor=call.actor,
    )  # fmt: skip
    return RescheduleReply(call.path["id"], clock.iso(at))


def _origin(call: Call) -> Origin:
    return Origin(call.account_id, "api", call.reach, traceparent=call.traceparent)


def _decoded(items: list[msgspec.Raw]) -> list[SendRequest | Refusal]:
    found: list[SendRequest | Refusal] = []
    for item in items:
        try:
            found.append(decode_body(item, _ITEM))
        except Refusal as refusal:
            found.append(refusal)
    return found


def _item(index: int, decision: Accepted | Refusal) -> BatchItem:
    if isinstance(decision, Refusal):
        return BatchItem(index=index, status="refused", error=refused_item(decision))
    item = BatchItem(index=index, id=decision.id, status=decision.status)
    if decision.body_differs:
        item.body_differs = True
    return item


async def _add_forecasts(
    call: Call, data: Sequence[BatchItem], checked: Sequence[Checked], decisions: Sequence[Accepted | Refusal]
) -> None:
    """Add the forecasts of all accepted messages; those of one domain share a look-up."""
    asked = [
        (item, forecast_of(call, made, decision))
        for item, made, decision in zip(data, checked, decisions, strict=True)
        if isinstance(decision, Accepted)
    ]
    for item, forecast in zip(
        [item for item, _ in asked], await asyncio.gather(*[one for _, one in asked]), strict=True
    ):
        item.forecast = forecast


def _foreseen_item(index: int, found: tuple[Accepted, ForeseenMessage] | Refusal) -> BatchItem:
    if isinstance(found, Refusal):
        return _item(index, found)
    item = _item(index, found[0])
    if item.status != "duplicate":
        item.id = UNSET  # no message has it
    item.message = found[1]
    return item


def refused_item(refusal: Refusal) -> dict[str, Any]:
    """Return the `error` of one entry among several, with what a single answer would say in `Retry-After`."""
    error = refusal.envelope()["error"]
    if refusal.retry_after_s is not None:
        error["retryAfter"] = refusal.retry_after_s
    return error


_KEYS = Area(
    "Emails",
    writes=("emails:send",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.message,
    id_of=ids.Kind.MESSAGE,
)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/emails",
        send,
        "Send an email, now or at its time",
        _KEYS,
        headers=(TRACEPARENT,),
        carries_messages=True,
        reply=SendReply,
        other_replies=(DryRunReply,),
        success=202,
        also=(200,),
        refusals=SEND_REFUSALS,
    ),
    Operation(
        "POST",
        "/v1/emails/batch",
        send_batch,
        f"Send up to {MAX_MESSAGES} emails, each accepted or refused on its own",
        _KEYS,
        headers=(TRACEPARENT,),
        request_parts=(SendRequest,),
        carries_messages=True,
    ),
    Operation(
        "PATCH",
        "/v1/emails/{id}/schedule",
        move,
        "Give a scheduled email another time",
        _KEYS,
        owner_check=owner_checks.rescheduling,
        refusals=(ErrorType.INVALID_STATE, ErrorType.DAILY_LIMIT_REACHED, ErrorType.MONTHLY_LIMIT_REACHED),
    ),
    Operation(
        "DELETE",
        "/v1/emails/{id}/schedule",
        cancel,
        "Cancel a scheduled email",
        _KEYS,
        owner_check=owner_checks.cancellation,
        refusals=(ErrorType.INVALID_STATE,),
    ),
)
