"""A send request as the contract describes it, and the message that acceptance makes of it."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from engine.mail.address import Mailbox

SLUG = r"^[a-z0-9]+(-[a-z0-9]+)*$"
MOST_RECIPIENTS = 50
MOST_ATTACHMENTS = 100
MOST_CONTENT = 13_981_016  # base64 characters of one attachment: 10 MiB

NOT_YET = "Not available yet: a request that carries it is refused with 400."

AddressText = Annotated[str, Meta(min_length=3, max_length=320)]
Slug = Annotated[str, Meta(min_length=1, max_length=64, pattern=SLUG)]
Tag = Annotated[str, Meta(min_length=1, max_length=64)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]


class AttachmentIn(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A file to attach; `content` is base64."""

    filename: Annotated[str, Meta(min_length=1, max_length=255)]
    content_type: Annotated[str, Meta(min_length=3, max_length=200)]
    content: Annotated[str, Meta(max_length=MOST_CONTENT)]
    disposition: Literal["attachment", "inline"] = "attachment"
    cid: Annotated[str, Meta(max_length=200)] | None = None


class SendRequest(
    Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from", "reply_to": "replyTo",
    "list_unsubscribe": "listUnsubscribe", "template_version": "templateVersion",
    "idempotency_key": "idempotencyKey", "scheduled_at": "scheduledAt"}, kw_only=True,
):  # fmt: skip
    """One email to send."""

    from_: AddressText
    to: AddressText | Annotated[list[AddressText], Meta(min_length=1)]
    cc: list[AddressText] = []
    bcc: list[AddressText] = []
    subject: Annotated[str, Meta(max_length=998)] = ""
    text: Annotated[str, Meta(max_length=5_000_000)] | None = None
    html: Annotated[str, Meta(max_length=5_000_000)] | None = None
    reply_to: Annotated[str, Meta(max_length=320)] | None = None
    headers: dict[Annotated[str, Meta(max_length=200)], Annotated[str, Meta(max_length=2000)]] = {}
    list_unsubscribe: Annotated[str, Meta(max_length=1000)] | None = None
    stream: Slug = "transactional"
    template: Annotated[Slug | None, Meta(description=NOT_YET)] = None
    template_version: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description=NOT_YET)] = None
    variables: Annotated[dict[Name, Annotated[str, Meta(max_length=5000)]] | None, Meta(description=NOT_YET)] = None
    tags: Annotated[list[Tag], Meta(max_length=10)] = []
    metadata: dict[Name, Annotated[str, Meta(max_length=512)]] = {}
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    scheduled_at: Annotated[str | None, Meta(description=NOT_YET)] = None
    attachments: Annotated[list[AttachmentIn], Meta(max_length=MOST_ATTACHMENTS)] = []


class Recipient(Struct, frozen=True):
    """One recipient of a message; `n` counts from 0 in the order to, cc, bcc."""

    n: int
    kind: str
    mailbox: Mailbox
    canonical: str


class StoredAttachment(Struct, frozen=True):
    """What is kept of an attachment beside its bytes."""

    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str


class Prepared(Struct, frozen=True, kw_only=True):
    """A message that passed every check which needs no count: ready to be stored."""

    account_id: UUID
    id: UUID
    public_id: str
    created_at: datetime
    source: str
    sender: str
    from_domain: str
    reply_to: str | None
    subject: str
    stream: str
    tags: list[str]
    metadata: dict[str, str]
    attachments: list[StoredAttachment]
    recipients: list[Recipient]
    mime: bytes
    smtputf8: bool
    idempotency_key: str | None
    request_digest: bytes


class Accepted(Struct, frozen=True):
    """The answer to a send."""

    id: str
    status: Literal["queued", "duplicate"]
    body_differs: bool = False
