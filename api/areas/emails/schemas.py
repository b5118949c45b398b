"""Wire shapes of sending. The request is the engine's own type: what is decoded is what is accepted."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from engine.areas.emails.types import AttachmentIn, SendRequest

__all__ = ["AttachmentIn", "SendReply", "SendRequest"]


class SendReply(Struct, rename="camel"):
    """What became of a send. `bodyDiffers`: this replay of an `idempotencyKey` came with another request."""

    id: str
    status: Literal["queued", "scheduled", "duplicate"]
    body_differs: bool | UnsetType = UNSET
