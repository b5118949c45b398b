"""Requests and replies of sending. `SendRequest` is the type that acceptance itself uses."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from engine.areas.emails.types import AttachmentIn, Moment, SendRequest

__all__ = [
    "AttachmentIn", "BatchItem", "BatchReply", "BatchRequest", "CancelReply", "RescheduleReply", "RescheduleRequest",
    "SendReply", "SendRequest",
]  # fmt: skip

MAX_MESSAGES = 100

# Each message is decoded by itself, so that an invalid one fails alone; the OpenAPI document shows its type.
Undecoded = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/SendRequest"})]


class SendReply(Struct, rename="camel"):
    """The result of a send. `bodyDiffers`: the `idempotencyKey` was used before, with another request."""

    id: str
    status: Literal["queued", "scheduled", "duplicate"]
    body_differs: bool | UnsetType = UNSET


class BatchRequest(Struct, forbid_unknown_fields=True):
    """Messages to send; each is accepted or refused on its own."""

    messages: Annotated[list[Undecoded], Meta(min_length=1, max_length=MAX_MESSAGES)]


class BatchItem(Struct, rename="camel", kw_only=True):
    """The result for the message at `index` (from 0): its `id`, or the `error` that a single send would return."""

    index: int
    id: str | UnsetType = UNSET
    status: Literal["queued", "scheduled", "duplicate", "refused"]
    body_differs: bool | UnsetType = UNSET
    error: Annotated[
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
    ] | UnsetType = UNSET  # fmt: skip


class BatchReply(Struct):
    """The result of a batch: an entry for each message, in the order of the request, and the count of each result."""

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
