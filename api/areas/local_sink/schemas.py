"""Replies about the mail in the local sink."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from engine.people.people.rules import MAX_EMAIL

MAX_WAIT_S: Final = 30
_WAIT: Final = "Seconds to wait for a matching email if there is none; the reply comes as soon as it arrives"


class SinkQuery(Struct, forbid_unknown_fields=True):
    """The query of `GET /v1/local/sink`: every given filter must match."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 25
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None
    after: Annotated[str, Meta(max_length=100, description="Id of an email: list those that arrived later")] | None = (
        None
    )
    wait: Annotated[int, Meta(ge=0, le=MAX_WAIT_S, description=_WAIT)] = 0
    message: Annotated[str, Meta(max_length=100, description="Id of a message")] | None = None
    recipient: Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL, description="In any case")] | None = None


class SinkEnvelope(Struct, rename="camel"):
    """The SMTP transaction in which the mail arrived."""

    from_: str
    to: list[str]
    helo: str
    tls: Annotated[str | None, Meta(description="Version of TLS, such as `TLSv1.3`; null for a plain connection")]
    port: Annotated[int | None, Meta(description="Port that the mail was sent from")]


class SinkMailRow(Struct, rename="camel"):
    """A mail that the local sink received. `subject` is null where the sink keeps no content."""

    id: str
    message_id: str
    received_at: str
    subject: str | None
    envelope: SinkEnvelope
    size_bytes: int


class SinkMailList(Struct, rename="camel"):
    """Mails, newest first. Pages may be short or empty while `hasMore` is true; `nextCursor` is null on the last."""

    data: list[SinkMailRow]
    next_cursor: str | None
    has_more: bool


class SinkHeaderField(Struct):
    """A decoded header field."""

    name: str
    value: str


class SinkAttachment(Struct):
    """An attachment of a mail in the local sink."""

    filename: str
    content_type: str
    size_bytes: int
    sha256: str
    cid: str | None


class SinkWarning(Struct):
    """A flaw of the mail that its reader noticed: a stable code, and a sentence for people."""

    code: str
    text: str


class SinkMailDetail(SinkMailRow, kw_only=True):
    """A mail with its content. `html` is as it was received, not sanitised."""

    headers: list[SinkHeaderField]
    text: str | None
    html: str | None
    attachments: list[SinkAttachment]
    warnings: list[SinkWarning]
