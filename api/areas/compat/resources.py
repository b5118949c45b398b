"""`/v1/compat/…`: sending with the requests of Resend and Postmark, through the acceptance of `POST /v1/emails`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from api.areas.compat import postmark_mapping, resend_mapping
from api.areas.compat.field_names import FieldNames
from api.areas.compat.schemas import (
    MAX_POSTMARK_BATCH,
    MAX_RESEND_BATCH,
    PostmarkBatch,
    PostmarkEmail,
    PostmarkError,
    PostmarkSent,
    ResendBatch,
    ResendBatchSent,
    ResendEmail,
    ResendError,
    ResendItemError,
    ResendSent,
)
from api.http import item_errors
from api.http.decode import LARGE_BYTES, decode_body
from api.http.operation import Area, Call, ErrorForm, HeaderField, LimitedKeys, Operation, Raw
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.sending.emails.types import SEND_REFUSALS, Accepted, SendRequest
from engine.sending.preparation import Origin

BATCH_STEP: Final = 100  # messages of a Postmark batch in one transaction
VALIDATION: Final = "x-batch-validation"
PERMISSIVE: Final = "permissive"
KEY_HEADER: Final = "X-Postmark-Server-Token"
# Clients such as postmarker join their base URL with `/email`, which leaves only its host (RFC 3986 5.2.2).
ALIASES: Final = {"/email": "/v1/compat/postmark/email", "/email/batch": "/v1/compat/postmark/email/batch"}
_KEY_FIELD: Final = HeaderField(KEY_HEADER, "An API key of this account, in place of `Authorization`", "svc_live_.+")

_RESEND: Final = msgspec.json.Decoder(ResendEmail)
_POSTMARK: Final = msgspec.json.Decoder(PostmarkEmail)

Email = TypeVar("Email", ResendEmail, PostmarkEmail)


async def send_resend(call: Call, body: ResendEmail) -> ResendSent:
    """Accept one message in the form of Resend."""
    accepted = await _accepted(call, resend_mapping.send_request(body), resend_mapping.NAMES)
    return ResendSent(accepted.id)


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
    return ResendBatchSent([ResendSent(one.id) for one in whole if isinstance(one, Accepted)])


async def send_postmark(call: Call, body: PostmarkEmail) -> PostmarkSent:
    """Accept one message in the form of Postmark."""
    accepted = await _accepted(call, postmark_mapping.send_request(body), postmark_mapping.NAMES)
    return postmark_mapping.sent(body, accepted, clock.iso(clock.now()))


async def send_postmark_batch(call: Call, body: PostmarkBatch) -> Raw:
    """Accept a batch in the form of Postmark, each message on its own."""
    if len(body) > MAX_POSTMARK_BATCH:
        raise postmark_mapping.too_many(len(body), MAX_POSTMARK_BATCH)
    read = await _read_batch(call, body, _POSTMARK, postmark_mapping.send_request)
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
    sent = [ResendSent(one.id) for one in decisions if isinstance(one, Accepted)]
    refused = [(index, one) for index, one in enumerate(decisions) if isinstance(one, Refusal)]
    return ResendBatchSent(sent, [ResendItemError(index, one.message) for index, one in refused])


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
    return Origin(call.account_id, "api", call.reach)


_RESEND_ERRORS: Final = ErrorForm(ResendError, resend_mapping.error_of)
_POSTMARK_ERRORS: Final = ErrorForm(PostmarkError, postmark_mapping.error_of)
_NOTE: Final = (
    "Set the client's base URL to {base} and its key to a key of this account. The message takes the way of `POST "
    "/v1/emails`: the same checks, counts, scope and rate limit. A field that has no counterpart is refused by name. "
    "The header `Idempotency-Key` is ignored: a repeated request sends again. Errors have the form of {service}, with "
    "our `error` beside it."
)
_RESEND_NOTE: Final = _NOTE.format(base="`…/v1/compat/resend`", service="Resend") + (
    " `tags` become `metadata`, `template.id` is a template of this account."
)
_POSTMARK_NOTE: Final = _NOTE.format(base="`…/v1/compat/postmark/`", service="Postmark") + (
    " Clients that use only the host of a base URL reach it as `/email` and `/email/batch`. The key may stand in "
    "`X-Postmark-Server-Token`, here alone. The `MessageStream` `outbound` is `transactional`."
)

_KEYS = Area("Compatibility", writes=("emails:send",), limited_keys=LimitedKeys.OWN)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/compat/resend/emails",
        send_resend,
        "Send a message as Resend's `POST /emails` takes it",
        _KEYS,
        note=_RESEND_NOTE,
        carries_messages=True,
        errors=_RESEND_ERRORS,
        refusals=SEND_REFUSALS,
    ),
    Operation(
        "POST",
        "/v1/compat/resend/emails/batch",
        send_resend_batch,
        f"Send up to {MAX_RESEND_BATCH} messages as Resend's `POST /emails/batch` takes them",
        _KEYS,
        note=_RESEND_NOTE + " All messages are accepted in one transaction, or none: the error then tells of the first "
        "one at fault. With `x-batch-validation: permissive` each is accepted or refused on its own.",
        request_parts=(ResendEmail,),
        carries_messages=True,
        headers=(
            HeaderField(VALIDATION, "`permissive`: refuse single messages. Default: `strict`", "strict|permissive"),
        ),
        errors=_RESEND_ERRORS,
        refusals=SEND_REFUSALS,
    ),
    Operation(
        "POST",
        "/v1/compat/postmark/email",
        send_postmark,
        "Send a message as Postmark's `POST /email` takes it",
        _KEYS,
        note=_POSTMARK_NOTE,
        key_header=KEY_HEADER,
        carries_messages=True,
        headers=(_KEY_FIELD,),
        errors=_POSTMARK_ERRORS,
        refusals=SEND_REFUSALS,
    ),
    Operation(
        "POST",
        "/v1/compat/postmark/email/batch",
        send_postmark_batch,
        f"Send up to {MAX_POSTMARK_BATCH} messages as Postmark's `POST /email/batch` takes them",
        _KEYS,
        note=_POSTMARK_NOTE + f" Each message is accepted or refused on its own, {BATCH_STEP} in a transaction; the "
        "answer has a result for each, in order.",
        key_header=KEY_HEADER,
        request_parts=(PostmarkEmail,),
        carries_messages=True,
        headers=(_KEY_FIELD,),
        reply=list[PostmarkSent],
        errors=_POSTMARK_ERRORS,
    ),
)
