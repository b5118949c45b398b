"""Wire shapes of sending. The request is the engine's own type: what is decoded is what is accepted."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from engine.areas.emails.types import AttachmentIn, Moment, SendRequest

__all__ = [
    "AttachmentIn", "BatchItem", "BatchReply", "BatchRequest", "CancelReply", "RescheduleReply", "RescheduleRequest",
    "SendReply", "SendRequest",
]  # fmt: skip

MAX_MESSAGES = 100

# Each item is decoded by itself, so that one with a wrong type fails alone; described as what it must be.
Undecoded = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/SendRequest"})]


class SendReply(Struct, rename="camel"):
    """What became of a send. `bodyDiffers`: this replay of an `idempotencyKey` came with another request."""

    id: str
    status: Literal["queued", "scheduled", "duplicate"]
    body_differs: bool | UnsetType = UNSET


class BatchRequest(Struct, forbid_unknown_fields=True):
    """Messages to send; each is accepted or refused on its own."""

    messages: Annotated[list[Undecoded], Meta(min_length=1, max_length=MAX_MESSAGES)]


class BatchItem(Struct, rename="camel", kw_only=True):
    """What became of the message at `index` (from 0): its `id`, or the `error` that its own request would have got."""

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
                        "description": "Seconds to wait, where a request of its own would have got `Retry-After`",
                    },
                },
            }
        ),
    ] | UnsetType = UNSET  # fmt: skip


class BatchReply(Struct):
    """One entry for each message, in the order of the request, and how many of each there are."""

    data: list[BatchItem]
    accepted: int
    duplicates: int
    refused: int


class RescheduleRequest(Struct, forbid_unknown_fields=True, rename="camel"):
    """Another time for a scheduled message. In the past or within 60 seconds: it goes out at once."""

    scheduled_at: Moment


class RescheduleReply(Struct, rename="camel"):
    """The message waits for another time."""

    id: str
    scheduled_at: str
    status: Literal["scheduled"] = "scheduled"


class CancelReply(Struct):
    """The message will not be sent."""

    id: str
    status: Literal["canceled"] = "canceled"
