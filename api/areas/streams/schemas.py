"""Requests and replies of message streams."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from api.http.if_exists import ReturnIfExists
from engine.sending.emails.limits import MAX_CONTENT_HOURS
from engine.sending.emails.types import Slug

_RETAIN = Meta(
    description="False: bodies and attachments of messages that say nothing else are encrypted, and deleted once the "
    "last recipient has an outcome"
)
_UNTIL = Meta(
    description="Hours from the last recipient's outcome to the deletion of the content. Not together with a "
    "`retainContent` of true",
    examples=[24],
)


class StreamsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/streams`: newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 100
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None


class StreamIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A new stream: an `id`, a `name`, or both. Without an `id` it gets one from its name."""

    id: Slug | None = None
    name: Annotated[str, Meta(max_length=120)] | None = None
    retain_content: Annotated[bool | None, _RETAIN] = None
    content_until: Annotated[Annotated[int, Meta(ge=1, le=MAX_CONTENT_HOURS)] | None, _UNTIL] = None
    if_exists: ReturnIfExists = None


class StreamChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How long a stream keeps the content of messages sent from now on; what is omitted stays."""

    retain_content: Annotated[bool | None, _RETAIN] = None
    content_until: Annotated[Annotated[int, Meta(ge=1, le=MAX_CONTENT_HOURS)] | UnsetType | None, _UNTIL] = UNSET


class Stream(Struct, rename="camel"):
    """A message stream. The transactional one, which every account has, can't be deleted."""

    id: str
    name: str
    deletable: bool
    retain_content: Annotated[bool, Meta(description="False: content is deleted once a message is final")]
    content_until: Annotated[
        int | None, Meta(description="Hours from the last recipient's outcome to that deletion; null for none")
    ]
    created_at: str


class StreamPage(Struct, rename="camel"):
    """Streams, newest first. `nextCursor` is null on the last page."""

    data: list[Stream]
    next_cursor: str | None
