"""Wire shapes of the live tail and of the pull of events. Details of events are snake_case, as in webhooks."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from engine.areas.emails.types import Slug, Tag
from engine.areas.tails.types import Ending
from engine.base.events import EventType, Status

MAX_TAGS = 10  # no message has more
MAX_SEQ = 2**63 - 1

Seq = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
Detail = Annotated[Raw, Meta(extra_json_schema={"type": "object"}, description="Its shape varies with the type")]


class TailQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """`GET /v1/messages/tail`: every filter given must match."""

    status: Annotated[Status | None, Meta(description="Of the message, as the event left it")] = None
    stream: Slug | None = None
    tag: Annotated[list[Tag], Meta(max_length=MAX_TAGS, description="Repeatable; all must be on the message")] = []
    replay: Annotated[
        int, Meta(ge=0, le=100, description="How many of the latest events to begin with; not beside `after`")
    ] = 20  # fmt: skip
    after: Annotated[Seq | None, Meta(description="A `seq`: everything behind it is shown first")] = None


class TailMessage(Struct, rename={"created_at": "createdAt", "message_id": "messageId", "from_": "from"}, kw_only=True):
    """The data of a `message` event. A send that was refused has no message: what belongs to one is null or empty."""

    seq: int
    id: str
    type: EventType
    created_at: str
    message_id: str | None
    status: Annotated[Status | None, Meta(description="Of the message, as the event left it")]
    from_: str | None
    to: list[str]
    subject: str | None
    stream: str | None
    tags: list[str]
    detail: Detail


class TailReady(Struct, rename="camel", kw_only=True):
    """The data of `ready`, which opens the stream and carries the `after` as its id."""

    seq: Annotated[int, Meta(description="The last event of the account's log now")]
    after: Annotated[int, Meta(description="What matches behind this `seq` follows")]
    first_seq: Annotated[int, Meta(description="The first event that retention has left")]
    heartbeat_seconds: float
    idle_seconds: float


class TailHeartbeat(Struct, rename="camel"):
    """The data of `heartbeat`: everything that matches up to `seq` has been shown."""

    seq: int
    at: str


class TailBye(Struct):
    """The data of `bye`, the last event."""

    reason: Ending
    message: str


class PullQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """`GET /v1/events`: oldest first."""

    after: Annotated[Seq, Meta(description="`nextCursor` of the page before: a `seq`")] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    type: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=64)]],
        Meta(max_length=20, description="Repeatable; one of them must match"),
    ] = []  # fmt: skip


class PulledEvent(Struct, rename="camel"):
    """One event of the account log: of a message (the thirteen types) or of the account (a type with a dot)."""

    id: str
    seq: int
    type: str
    created_at: str
    message_id: str | None
    detail: Detail


class EventPage(Struct, rename="camel"):
    """Events, oldest first. Pages may be short. `nextCursor` is never null: a log has no last page, so keep it and
    ask again later once `hasMore` is false. Events up to `purgedThroughSeq` have aged out of retention."""

    data: list[PulledEvent]
    next_cursor: str
    has_more: bool
    purged_through_seq: int
