"""`/v1/compat/…`: sending with the requests of Resend and Postmark, through the acceptance of `POST /v1/emails`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from api.areas.compat import postmark_mapping, resend_mapping
from api.areas.compat.field_names import FieldNames
from api.areas.compat.forms import KEY_HEADER, KEY_HEADER_FIELD, POSTMARK_ERRORS, RESEND_ERRORS
from api.areas.compat.header_options import KEY_FIELD
from api.areas.compat.schemas import (
    MAX_POSTMARK_BATCH,
    MAX_RESEND_BATCH,
    PostmarkBatch,
    PostmarkEmail,
    PostmarkSent,
    PostmarkTemplates,
    ResendBatch,
    ResendBatchError,
    ResendBatchSent,
    ResendEmail,
    ResendSent,
)
from api.http import item_errors
from api.http.decode import LARGE_BYTES, decode_body
from api.http.operation import Area, Call, ErrorForm, Handler, HeaderField, LimitedKeys, Operation, Raw
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.sending.emails.types import SEND_REFUSALS, Accepted, SendRequest
from engine.sending.preparation import Origin

BATCH_STEP: Final = 100  # messages of a Postmark batch in one transaction
VALIDATION: Final = "x-batch-validation"
PERMISSIVE: Final = "permissive"

_RESEND: Final = msgspec.json.Decoder(ResendEmail)
_POSTMARK: Final = msgspec.json.Decoder(PostmarkEmail)

Email = TypeVar("Email", ResendEmail, PostmarkEmail)


async def send_resend(call: Call, body: ResendEmail) -> ResendSent:
    """Accept one message in the form of Resend."""
    accepted = await _accepted(call, resend_mapping.send_request(body), resend_mapping.NAMES)
    return resend_mapping.sent(accepted)


async def send_resend_batch(call: Call, body: ResendBatch) -> ResendBatchSent:
    """Accept a batch in the form of Resend: all messages or none, or with the header each one on its own."""
    read = await _read_batch(call, body, _RESEND, resend_mapping.send_request)
    items = [request for _, request in read]
    if (call.request.get_header(VALIDATION) or "").strip().lower() == PERMISSIVE:
        decisions = await _accepted_set(call, items)
        return _permissive(_named(decisions, items, resend_mapping.NAMES))
    if any(isinstance(one, Refusal) for one in items):
        raise _first_refusal(items)
    whole = await _accepted_set(call, items, whole=True)
    if any(isinstance(one, Refusal) for one in whole):
        raise _first_refusal(_named(whole, items, resend_mapping.NAMES))
    return ResendBatchSent([resend_mapping.sent(one) for one in whole if isinstance(one, Accepted)])


async def send_postmark(call: Call, body: PostmarkEmail) -> PostmarkSent:
    """Accept one message in the form of Postmark."""
    accepted = await _accepted(call, postmark_mapping.send_request(body), postmark_mapping.NAMES)
    return postmark_mapping.sent(body, accepted, clock.iso(clock.now()))


async def send_postmark_template(call: Call, body: PostmarkEmail) -> PostmarkSent:
    """Accept one message with a template in the form of Postmark."""
    accepted = await _accepted(call, postmark_mapping.template_request(body), postmark_mapping.NAMES)
    return postmark_mapping.sent(body, accepted, clock.iso(clock.now()))


async def send_postmark_batch(call: Call, body: PostmarkBatch) -> Raw:
    """Accept a batch in the form of Postmark, each message on its own."""
    return await _postmark_batch(call, body, postmark_mapping.send_request)


async def send_postmark_templates(call: Call, body: PostmarkTemplates) -> Raw:
    """Accept a batch of messages with templates in the form of Postmark, each message on its own."""
    return await _postmark_batch(call, body.messages, postmark_mapping.template_request)


async def _postmark_batch(
    call: Call, body: Sequence[msgspec.Raw], to_request: Callable[[PostmarkEmail], SendRequest]
) -> Raw:
    if len(body) > MAX_POSTMARK_BATCH:
        raise postmark_mapping.too_many(len(body), MAX_POSTMARK_BATCH)
    read = await _read_batch(call, body, _POSTMARK, to_request)
    items = [request for _, request in read]
    decisions: list[Accepted | Refusal] = []
    for start in range(0, len(items), BATCH_STEP):
        decisions += await _step(call, items[start : start + BATCH_STEP], is_first=start == 0)
    at = clock.iso(clock.now())
    results = [
        _postmark_result(email, decision, at)
        for (email, _), decision in zip(read, _named(decisions, items, postmark_mapping.NAMES), strict=True)
    ]
    item_errors.link(call, results)
    return Raw(msgspec.json.encode(results), "application/json")


async def _step(call: Call, items: Sequence[SendRequest | Refusal], *, is_first: bool) -> list[Accepted | Refusal]:
    """Accept one transaction's part of a batch. After the first, an outage refuses single messages: those before them
    are stored.
    """
    try:
        return await _accepted_set(call, items)
    except Refusal as refusal:
        if is_first:
            raise
        return [refusal for _ in items]


async def _accepted_set(
    call: Call, items: Sequence[SendRequest | Refusal], *, whole: bool = False
) -> list[Accepted | Refusal]:
    acceptor = call.services.acceptor
    return await acceptor.accept_set(await acceptor.preparer.check_all(items, _origin(call)), whole=whole)


async def _accepted(call: Call, request: SendRequest, names: FieldNames) -> Accepted:
    acceptor = call.services.acceptor
    try:
        return await acceptor.accept(await acceptor.preparer.check(request, _origin(call)))
    except Refusal as refusal:
        raise names.refusal(refusal) from None


async def _read_batch(
    call: Call,
    body: Sequence[msgspec.Raw],
    decoder: msgspec.json.Decoder[Email],
    to_request: Callable[[Email], SendRequest],
) -> list[tuple[Email | None, SendRequest | Refusal]]:
    """Return each message of a batch, decoded and mapped on its own; large batches are read in a thread."""

    def read() -> list[tuple[Email | None, SendRequest | Refusal]]:
        return [_read_item(one, decoder, to_request) for one in body]

    return await asyncio.to_thread(read) if call.body_bytes > LARGE_BYTES else read()


def _read_item(
    item: msgspec.Raw, decoder: msgspec.json.Decoder[Email], to_request: Callable[[Email], SendRequest]
) -> tuple[Email | None, SendRequest | Refusal]:
    try:
        email: Email = decode_body(item, decoder)
        return email, to_request(email)
    except Refusal as refusal:
        return None, refusal


def _named(
    decisions: Sequence[Accepted | Refusal], items: Sequence[SendRequest | Refusal], names: FieldNames
) -> list[Accepted | Refusal]:
    """Return the decisions; refusals of acceptance get the other service's names, those of reading have them."""
    return [
        names.refusal(decision) if isinstance(decision, Refusal) and decision is not item else decision
        for decision, item in zip(decisions, items, strict=True)
    ]


def _permissive(decisions: Sequence[Accepted | Refusal]) -> ResendBatchSent:
    sent = [resend_mapping.sent(one) for one in decisions if isinstance(one, Accepted)]
    refused = [(index, one) for index, one in enumerate(decisions) if isinstance(one, Refusal)]
    return ResendBatchSent(sent, [ResendBatchError(index, one.message) for index, one in refused])


def _first_refusal(decisions: Sequence[object]) -> Refusal:
    """Return the refusal of a whole batch: that of its first message at fault, with the place of the message."""
    refused = [(index, one) for index, one in enumerate(decisions) if isinstance(one, Refusal)]
    index, fault = next(one for one in refused if one[1].kind is not ErrorType.CONFLICT)
    fields = dict(fault.fields)
    if "field" in fields:
        fields["field"] = f"[{index}].{fields['field']}"
    sentence = f"Message {index} (from 0): {fault.message} No message of the batch was sent."
    return Refusal(fault.kind, sentence, retry_after_s=fault.retry_after_s, **fields)


def _postmark_result(email: PostmarkEmail | None, decision: Accepted | Refusal, at: str) -> PostmarkSent:
    if isinstance(decision, Refusal):
        return postmark_mapping.refused(decision)
    assert email is not None  # a message that can't be read is refused
    return postmark_mapping.sent(email, decision, at)


def _origin(call: Call) -> Origin:
    return Origin(call.account_id, "api", call.reach, traceparent=call.traceparent)


_WARNING: Final = "the header Idempotency-Key is never read; use the body field idempotencyKey"
WARNING_HEADERS: Final = (("X-Waybill-Warning", _WARNING),)
_NOTE: Final = (
    "Set the client's base URL to {base} and its key to a key of this account. The message is handled as with "
    "`POST /v1/emails`: the same checks, counts, scope and rate limit. A field that has no counterpart is refused "
    "by name. The header `Idempotency-Key` is never read, which every response says in `X-Waybill-Warning`: a "
    "repeated request sends again unless the body has the field `idempotencyKey`, or the message's own headers "
    f"`{KEY_FIELD}`, for clients that pass known fields only. Errors have the form of {{service}}, with our `error` "
    "beside it."
)
_RESEND_NOTE: Final = _NOTE.format(base="`…/v1/compat/resend`", service="Resend") + (
    " `tags` become `metadata`, `template.id` is a template of this account. The headers `X-Tags` and `X-Metadata`, in "
    "which django-anymail sends tags and metadata as JSON, become those of the message too."
)
_POSTMARK_NOTE: Final = _NOTE.format(base="`…/v1/compat/postmark/`", service="Postmark") + (
    " Clients that use only the host of a base URL reach it without that path, as `/email` and the like. "
    "Postmark's paths also accept the key in `X-Postmark-Server-Token`. The `MessageStream` `outbound` is "
    "`transactional`."
)
_BATCH_NOTE: Final = (
    f" Each message is accepted or refused on its own, {BATCH_STEP} in a transaction; the response has a result for "
    "each, in order."
)

_KEYS = Area("Compatibility", writes=("emails:send",), limited_keys=LimitedKeys.OWN)


class _Send(Struct, frozen=True):
    """The fields that all send operations for the clients of one service share."""

    note: str
    errors: ErrorForm
    key_header: str | None = None
    headers: tuple[HeaderField, ...] = ()

    def operation(self, path: str, handler: Handler, summary: str, note: str = "", **fields: Any) -> Operation:
        return Operation(
            "POST", path, handler, summary, _KEYS, note=self.note + note, key_header=self.key_header,
            carries_messages=True, reply_headers=WARNING_HEADERS, errors=self.errors,
            **({"headers": self.headers} | fields),
        )  # fmt: skip


_RESEND_SEND: Final = _Send(_RESEND_NOTE, RESEND_ERRORS)
_POSTMARK_SEND: Final = _Send(_POSTMARK_NOTE, POSTMARK_ERRORS, KEY_HEADER, (KEY_HEADER_FIELD,))
OPERATIONS = (
    _RESEND_SEND.operation(
        "/v1/compat/resend/emails",
        send_resend,
        "Send a message in the form of Resend's `POST /emails`",
        refusals=SEND_REFUSALS,
    ),
    _RESEND_SEND.operation(
        "/v1/compat/resend/emails/batch",
        send_resend_batch,
        f"Send up to {MAX_RESEND_BATCH} messages in the form of Resend's `POST /emails/batch`",
        " All messages are accepted in one transaction, or none: the error then names the first one at fault. With "
        "`x-batch-validation: permissive` each is accepted or refused on its own.",
        request_parts=(ResendEmail,),
        headers=(
            HeaderField(VALIDATION, "`permissive`: refuse single messages. Default: `strict`", "strict|permissive"),
        ),
        refusals=SEND_REFUSALS,
    ),
    _POSTMARK_SEND.operation(
        "/v1/compat/postmark/email",
        send_postmark,
        "Send a message in the form of Postmark's `POST /email`",
        refusals=SEND_REFUSALS,
    ),
    _POSTMARK_SEND.operation(
        "/v1/compat/postmark/email/withTemplate",
        send_postmark_template,
        "Send a message with a template in the form of Postmark's `POST /email/withTemplate`",
        refusals=SEND_REFUSALS,
    ),
    _POSTMARK_SEND.operation(
        "/v1/compat/postmark/email/batch",
        send_postmark_batch,
        f"Send up to {MAX_POSTMARK_BATCH} messages in the form of Postmark's `POST /email/batch`",
        _BATCH_NOTE,
        request_parts=(PostmarkEmail,),
        reply=list[PostmarkSent],
    ),
    _POSTMARK_SEND.operation(
        "/v1/compat/postmark/email/batchWithTemplates",
        send_postmark_templates,
        f"Send up to {MAX_POSTMARK_BATCH} messages in the form of Postmark's `POST /email/batchWithTemplates`",
        _BATCH_NOTE,
        request_parts=(PostmarkEmail,),
        reply=list[PostmarkSent],
    ),
)
