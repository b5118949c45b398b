"""Build the message that sends the content of an earlier one again. Pure."""

from hashlib import blake2b
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.events import SEALED_SOURCES, Status
from engine.mail.address import Mailbox, canonical
from engine.mail.resent import renewed
from engine.sending.emails.defaults import min_tls_to_store
from engine.sending.emails.types import MessageFacts, MinTls, Prepared, PreparedRecipient, StoredAttachment

UNFINISHED = frozenset({Status.SCHEDULED, Status.QUEUED, Status.SENDING})
FORWARDED = "forward"  # the source of messages that are not sent again, as are those of SEALED_SOURCES
_TAGS = msgspec.json.Decoder(list[str])
_METADATA = msgspec.json.Decoder(dict[str, str])
_FILES = msgspec.json.Decoder(list[StoredAttachment])


class SentMessage(Struct, frozen=True):
    """A stored message without its content; recipients are (kind, address, name) in their order."""

    id: UUID
    status: str
    source: str
    sender: str
    from_domain: str
    reply_to: str | None
    subject: str
    stream: str
    template: str | None
    template_version: int | None
    tags: str | None  # JSON, as are the next two
    metadata: str | None
    attachments: str | None
    size_bytes: int
    content_hours: int | None
    recipients: list[tuple[str, str, str | None]]


def check_resendable(message: SentMessage) -> None:
    """Raise the 409 for a message that is still on its way, or whose content can't be sent again."""
    if message.status in UNFINISHED:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"The message is still {message.status}. Send it again once it is delivered or has failed.",
            state=message.status,
        )
    if message.source in SEALED_SOURCES:
        raise Refusal(
            ErrorType.INVALID_STATE,
            "The content of codes and system mail is not kept. To send a code again, use POST "
            "/v1/verifications/{id}/resend.",
            state=message.status,
        )
    if message.source == FORWARDED:
        raise Refusal(
            ErrorType.INVALID_STATE,
            "The message was received and forwarded. Use POST /v1/inbound/messages/{id}/replay.",
            state=message.status,
        )


def erased(message: SentMessage) -> Refusal:
    """Return the 409 for a message whose content is not stored any more."""
    if message.content_hours is not None:
        return Refusal(
            ErrorType.INVALID_STATE,
            "The content was deleted once the message was final. Send a new message with POST /v1/emails.",
            state=message.status,
        )
    return Refusal(
        ErrorType.INVALID_STATE,
        "The content of the message was erased. Send a new message with POST /v1/emails.",
        state=message.status,
    )


def digest_of(message: UUID, min_tls: MinTls | None) -> bytes:
    """Return 16 bytes that are equal for two requests to send the same message again."""
    return blake2b(message.bytes + (min_tls_to_store(min_tls) or "").encode(), digest_size=16).digest()


def prepared(
    message: SentMessage,
    mime: bytes,
    *,
    smtputf8: bool,
    min_tls: MinTls | None,
    idempotency_key: str | None,
    facts: MessageFacts,
) -> Prepared:
    """Return the new message to store: content, recipients, stream, tags and metadata of the old one."""
    public_id = ids.format_id(ids.Kind.MESSAGE, facts.message_id)
    attachments = [] if message.attachments is None else _FILES.decode(message.attachments)
    return Prepared(
        account_id=facts.account_id,
        id=facts.message_id,
        public_id=public_id,
        created_at=facts.at,
        source="api",
        sender=message.sender,
        from_domain=message.from_domain,
        reply_to=message.reply_to,
        subject=message.subject,
        stream=message.stream,
        tags=[] if message.tags is None else _TAGS.decode(message.tags),
        metadata={} if message.metadata is None else _METADATA.decode(message.metadata),
        attachments=[structs.replace(one, id=ids.format_id(ids.Kind.ATTACHMENT, ids.uuid7())) for one in attachments],
        recipients=[
            PreparedRecipient(place, kind, Mailbox(name or "", address), canonical(address))
            for place, (kind, address, name) in enumerate(message.recipients)
        ],
        mime=renewed(mime, message_id=f"{ids.body_of(public_id)}@{message.from_domain}", at=facts.at, cfbl=facts.cfbl),
        smtputf8=smtputf8,
        idempotency_key=idempotency_key,
        request_digest=digest_of(message.id, min_tls) if idempotency_key else b"",
        template=message.template,
        template_version=message.template_version,
        min_tls=min_tls_to_store(min_tls),
        resent_from=message.id,
        traceparent=facts.traceparent,
        content_hours=facts.stream_content_hours if message.content_hours is None else message.content_hours,
    )
