"""Requests and replies of message streams."""

from typing import Annotated

from msgspec import Meta, Struct

from api.http.if_exists import ReturnIfExists
from engine.sending.emails.types import Slug


class StreamsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/streams`: newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 100
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None


class StreamIn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A new stream: an `id`, a `name`, or both. Without an `id` it gets one from its name."""

    id: Slug | None = None
    name: Annotated[str, Meta(max_length=120)] | None = None
    if_exists: ReturnIfExists = None


class Stream(Struct, rename="camel"):
    """A message stream. The transactional one, which every account has, can't be deleted."""

    id: str
    name: str
    deletable: bool
    created_at: str


class StreamPage(Struct, rename="camel"):
    """Streams, newest first. `nextCursor` is null on the last page."""

    data: list[Stream]
    next_cursor: str | None
