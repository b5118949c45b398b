"""`POST /v1/emails/raw`: send a message that its client composed, as SMTP submission takes it."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from api.areas.emails.dry_run import dry_run
from api.areas.emails.resources import accepted
from api.areas.emails.schemas import AskedForecast, DryRunReply, SendReply
from api.http.operation import TRACEPARENT, Area, Call, LimitedKeys, Operation
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail.address import BadAddress, Mailbox, parse_mailbox
from engine.mail.submitted import Flaw, Unsendable
from engine.sending.emails.limits import MAX_RECIPIENTS
from engine.sending.emails.rules import too_large
from engine.sending.emails.types import SEND_REFUSALS, AddressText
from engine.sending.preparation import Origin, read_message

GLOBAL: Final = "message/global"  # RFC 6532 3.7: the header may hold UTF-8
BODY_TYPES: Final = ("message/rfc822", GLOBAL, "application/octet-stream")
PROTOCOL: Final = "HTTP"  # in the Received field


class RawQuery(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The query of `POST /v1/emails/raw`."""

    recipient: Annotated[
        list[AddressText] | None,
        Meta(
            description=f"A recipient of the envelope; repeat it for each, up to {MAX_RECIPIENTS}. Default: the "
            "addresses in To, Cc and Bcc",
            examples=[["ann@example.net"]],
        ),
    ] = None
    dry_run: Annotated[
        bool | None,
        Meta(description="True: check the message and return what would happen; send nothing", examples=[True]),
    ] = None
    forecast: AskedForecast = None


async def send_raw(call: Call, query: RawQuery, body: bytes) -> SendReply | DryRunReply:
    """Accept a composed message; answer 202 for a new one, 200 for a replay of an idempotency key and for a dry run."""
    if len(body) > call.settings.max_message_bytes:
        raise too_large(call.settings.max_message_bytes)
    recipients = None if query.recipient is None else [_mailbox(text) for text in query.recipient]
    is_global = (call.request.content_type or "").partition(";")[0].strip().lower() == GLOBAL
    try:
        message = await read_message(
            body, recipients, smtputf8=is_global, host=call.settings.mail_host, protocol=PROTOCOL
        )
    except Unsendable as error:
        raise invalid("body", _sentence(error)) from error
    origin = Origin(call.account_id, "api", call.reach, traceparent=call.traceparent)
    if not query.dry_run:
        return await accepted(call, message, origin, forecast=bool(query.forecast))
    return await dry_run(call, message, origin)


def _mailbox(text: str) -> Mailbox:
    try:
        return parse_mailbox(text)
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS,
            f"`recipient` is not an email address: {error}",
            address=text,
            field="recipient",
        ) from error


def _sentence(error: Unsendable) -> str:
    if error.flaw is Flaw.CHARSET:
        return f"{error} Over HTTP, the Content-Type {GLOBAL} announces a header in UTF-8."
    return str(error)


_NOTE: Final = (
    "The body is the message itself (RFC 5322), at most <max_message_bytes>, with lines that end in CRLF, or all "
    "in LF. It is sent as it is: `Bcc`, `X-Waybill-*` and fields that only mail servers write are removed, "
    "`Feedback-ID` and `CFBL-*` are replaced by those of the service, `Date` and `Message-ID` are added where they "
    "are missing, a `Received` field is added, and 8-bit parts are encoded. The fields `X-Waybill-Stream`, `-Tag`, "
    "`-Metadata`, `-Idempotency-Key`, `-Scheduled-At`, `-Deliver-By`, `-Min-Tls`, `-Retain-Content`, `-Content-Until`, "
    "`-Template`, `-Template-Version`, `-Variables` and `-Data` of the message have the meaning of those fields in "
    "`POST /v1/emails`, as they do over SMTP. Recipients named only by `recipient` count as bcc. `From` must contain "
    "one address of a verified domain. Send a header in UTF-8 as `message/global`."
)

_KEYS = Area("Emails", writes=("emails:send",), limited_keys=LimitedKeys.OWN)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/emails/raw",
        send_raw,
        "Send a MIME message that you composed",
        _KEYS,
        note=_NOTE,
        headers=(TRACEPARENT,),
        body_types=BODY_TYPES,
        carries_messages=True,
        reply=SendReply,
        other_replies=(DryRunReply,),
        success=202,
        also=(200,),
        refusals=SEND_REFUSALS,
    ),
)
