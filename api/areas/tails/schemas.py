"""Requests and replies of the live tail and of pulling events. Event details are snake_case, as in webhooks."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from engine.base.events import EventType, Status
from engine.events.tails.types import Ending
from engine.sending.emails.types import Slug, Tag

MAX_TAGS = 10  # of one message
MAX_SEQ = 2**63 - 1

Seq = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
Replay = Annotated[
    int, Meta(ge=0, le=100, description="The number of latest events to begin with; not together with `after`")
]
After = Annotated[Seq | None, Meta(description="A `seq`: the stream begins with all matching events after it")]
Detail = Annotated[Raw, Meta(extra_json_schema={"type": "object"}, description="The shape depends on the type")]


class TailQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/messages/tail`: every given filter must match."""

    status: Annotated[Status | None, Meta(description="Of the message, as the event left it")] = None
    stream: Slug | None = None
    tag: Annotated[list[Tag], Meta(max_length=MAX_TAGS, description="Repeatable; all must be on the message")] = []
    replay: Replay = 20
    after: After = None


class EventTailQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/events/tail`."""

    type: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=64)]],
        Meta(
            max_length=20,
            description="Repeatable; one of them must match: a type, or the beginning of types, such as `domain.`",
        ),
    ] = []  # fmt: skip
    replay: Replay = 20
    after: After = None


class TailMessage(Struct, rename="camel", kw_only=True):
    """The data of a `message` event.

    For a refused send, which has no message, the fields of a message are null or empty.
    """

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
    """The data of `ready`, the first event of the stream, whose id is `after`."""

    seq: Annotated[int, Meta(description="The `seq` of the log's last event now")]
    after: Annotated[int, Meta(description="All matching events after this `seq` follow")]
    first_seq: Annotated[int, Meta(description="The `seq` of the first retained event")]
    heartbeat_seconds: float
    idle_seconds: float


class TailHeartbeat(Struct, rename="camel"):
    """The data of `heartbeat`: all matching events up to `seq` have been sent."""

    seq: int
    at: str


class TailBye(Struct):
    """The data of `bye`, the last event."""

    reason: Ending
    message: str


class PullQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/events`: oldest first."""

    after: Annotated[
        Seq | Literal["latest"],
        Meta(
            description="`nextCursor` of the previous page: a `seq`. `latest`: an empty page whose `nextCursor` is the "
            "end of the log, to begin with what comes next"
        ),
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    type: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=64)]],
        Meta(max_length=20, description="Repeatable; one of them must match"),
    ] = []  # fmt: skip


class PulledEvent(Struct, rename="camel"):
    """An event of the account log: of a message (thirteen types) or of the account (types with a dot)."""

    id: str
    seq: int
    type: str
    created_at: str
    message_id: str | None
    detail: Detail


class EventPage(Struct, rename="camel"):
    """Events, oldest first. Pages may be short.

    `nextCursor` is never null, as a log has no last page: keep it and ask again later once `hasMore` is false. Events
    up to `purgedThroughSeq` are no longer retained.
    """

    data: list[PulledEvent]
    next_cursor: str
    has_more: bool
    purged_through_seq: int
