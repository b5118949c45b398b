"""Requests and replies of sending. `SendRequest` is the type that acceptance itself uses."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from engine.receiving.receivers.types import Forecast
from engine.sending.emails.limits import MAX_MESSAGES
from engine.sending.emails.types import AttachmentIn, Moment, SendRequest
from engine.sending.sender_requirements import SendChecks

__all__ = [
    "AttachmentIn", "BatchItem", "BatchReply", "BatchRequest", "CancelReply", "RescheduleReply", "RescheduleRequest",
    "SendReply", "SendRequest",
]  # fmt: skip


# Each message is decoded by itself, so that an invalid one fails alone; the OpenAPI document shows its type.
Undecoded = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/SendRequest"})]

# The error that a single request would have got, of one entry among several.
ItemError = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={
            "required": ["type", "message"],
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string"},
                "retryAfter": {
                    "type": "integer",
                    "description": "Seconds to wait, if a single send would have got the header `Retry-After`",
                },
            },
        }
    ),
]


AskedForecast = Annotated[
    bool | None,
    Meta(
        description="True: tell in the response when the email will probably arrive. Looking up the servers of an "
        "unknown recipient domain takes up to 1.5 seconds"
    ),
]


class ForeseenFile(Struct):
    """An attachment of a message that would be sent."""

    filename: str
    content_type: str
    size_bytes: int
    sha256: str


class SendReply(Struct, rename="camel"):
    """The result of a send. `bodyDiffers`: the `idempotencyKey` was used before, with another request."""

    id: str
    status: Literal["queued", "scheduled", "duplicate"]
    body_differs: bool | UnsetType = UNSET
    forecast: Forecast | UnsetType | None = UNSET


class EmailRequest(SendRequest, frozen=True, kw_only=True, rename="camel"):
    """An email to send, or to check and compose only: with `html`, `text` or both, or with a `template`."""

    dry_run: Annotated[
        bool | None,
        Meta(
            description="True: run every check and compose the message, then return 200 with what would happen, or the "
            "error of the send. Nothing is stored, counted or sent"
        ),
    ] = None
    forecast: AskedForecast = None


class BatchRequest(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Messages to send; each is accepted or refused on its own."""

    messages: Annotated[list[Undecoded], Meta(min_length=1, max_length=MAX_MESSAGES)]
    dry_run: Annotated[
        bool | None,
        Meta(
            description="True: check and compose all messages, and return what would happen to each, as if they came "
            "one after the other. Nothing is stored, counted or sent"
        ),
    ] = None
    forecast: AskedForecast = None


class ForeseenMessage(
    Struct,
    rename="camel",
    kw_only=True,
):
    """The message as it would be sent, in the fields of `GET /v1/messages/{id}`. `sizeBytes` excludes the DKIM
    signature; `attachments` have no ids.
    """

    from_: Annotated[str, Meta(description="As written in the request")]
    to: list[str]
    cc: list[str]
    bcc: list[str]
    reply_to: str | None
    subject: str
    text: str | None
    html: str | None
    stream: str
    template: str | None
    template_version: int | None
    tags: list[str]
    metadata: dict[str, str]
    scheduled_at: str | None
    deliver_by: str | None
    size_bytes: int
    attachments: list[ForeseenFile]


class DryRunReply(Struct, rename="camel", kw_only=True):
    """Answer a send with `dryRun`: the reply that the same send without it would get, the composed message, and what
    spam filters and mailbox providers will probably make of it.

    `id` is present for a duplicate only: the message that was accepted with the same idempotency key before.
    """

    dry_run: Literal[True] = True
    status: Literal["queued", "scheduled", "duplicate"]
    id: str | UnsetType = UNSET
    body_differs: bool | UnsetType = UNSET
    message: ForeseenMessage
    checks: SendChecks
    forecast: Forecast | None


class BatchItem(Struct, rename="camel", kw_only=True):
    """The result for the message at `index` (from 0): its `id`, or the `error` that a single send would return."""

    index: int
    id: str | UnsetType = UNSET
    status: Literal["queued", "scheduled", "duplicate", "refused"]
    body_differs: bool | UnsetType = UNSET
    message: Annotated[ForeseenMessage | UnsetType, Meta(description="Given with `dryRun`")] = UNSET
    forecast: Forecast | UnsetType | None = UNSET
    error: ItemError | UnsetType = UNSET


class BatchReply(Struct, rename="camel", kw_only=True):
    """The result of a batch: an entry for each message, in the order of the request, and the count of each result.
    `dryRun`: nothing was stored or sent, and entries that would be accepted have no `id`.
    """

    dry_run: bool | UnsetType = UNSET

    data: list[BatchItem]
    accepted: int
    duplicates: int
    refused: int


class RescheduleRequest(Struct, forbid_unknown_fields=True, rename="camel"):
    """A new time for a scheduled message; a time in the past or within 60 seconds sends it at once."""

    scheduled_at: Moment


class RescheduleReply(Struct, rename="camel"):
    """The message is scheduled for another time."""

    id: str
    scheduled_at: str
    status: Literal["scheduled"] = "scheduled"


class CancelReply(Struct):
    """The message will not be sent."""

    id: str
    status: Literal["canceled"] = "canceled"
