"""Wire shapes of the audit: the account log as it is hashed, and the verdict on it."""

from typing import Annotated

from msgspec import Meta, Struct

MAX_SEQ = 2**63 - 1

Moment = Annotated[
    str,
    Meta(
        max_length=40,
        description="ISO 8601, UTC, with `Z`",
        examples=["2026-11-20T08:09:10Z"],
        extra_json_schema={"format": "date-time"},
    ),
]
Digest = Annotated[str, Meta(description="SHA-256 in lower-case hex")]


class AuditQuery(Struct, forbid_unknown_fields=True, rename={"from_": "from"}, kw_only=True):
    """`GET /v1/audit/events`: newest first."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 100
    before: Annotated[int, Meta(ge=1, le=MAX_SEQ, description="`nextCursor` of the page before: a `seq`")] | None = None
    type: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    from_: Moment | None = None
    until: Moment | None = None


class AuditExportQuery(Struct, forbid_unknown_fields=True, rename={"from_": "from"}, kw_only=True):
    """`GET /v1/audit/export`: oldest first."""

    from_: Moment | None = None
    until: Moment | None = None


class AuditEvent(Struct, rename="camel"):
    """One event exactly as it was sealed: `payload` and `occurredAt` are the very texts that were hashed."""

    seq: int
    id: str
    type: str
    occurred_at: str
    payload: Annotated[str, Meta(description="JSON text with `type`, `messageId` and `detail`")]
    hash: Digest
    prev_hash: Annotated[
        Digest | None, Meta(description="Hash of the event before; null where a break in the log took that one")
    ]


class AuditPage(Struct, rename="camel"):
    """Events, newest first. Pages may be short; `nextCursor` is null on the last one."""

    data: list[AuditEvent]
    next_cursor: str | None


class HashedBy(Struct, rename="camel"):
    """How the hash of each event is made."""

    algorithm: str
    encoding: str
    formula: str
    first_prev_hash: Digest


class HeadOfLog(Struct, rename="camel"):
    """The last event."""

    seq: int
    hash: Digest


class ExportHeader(Struct, rename={
    "from_": "from", "created_at": "createdAt", "purged_through_seq": "purgedThroughSeq", "purged_hash": "purgedHash",
}, tag_field="record", tag="header", kw_only=True):  # fmt: skip
    """The first record of an export."""

    account: str
    created_at: str
    from_: str | None
    until: str | None
    hash: HashedBy
    head: HeadOfLog
    purged_through_seq: int
    purged_hash: Annotated[Digest, Meta(description="`prevHash` of the first event that retention has left")]


class ExportedEvent(Struct, rename="camel", tag_field="record", tag="event", kw_only=True):
    """A record of an export between the first and the last."""

    seq: int
    id: str
    type: str
    occurred_at: str
    payload: str
    hash: Digest
    prev_hash: Digest | None


class ExportTrailer(Struct, rename="camel", tag_field="record", tag="trailer", kw_only=True):
    """The last record of an export; a file without it is incomplete."""

    events: Annotated[int, Meta(description="Records of events in this file")]
    intact: bool
    broken_at: int | None
    problem: str | None


ExportRecord = ExportHeader | ExportedEvent | ExportTrailer


class Intact(Struct, rename="camel"):
    """The narrow verdict."""

    intact: bool
    broken_at: Annotated[int | None, Meta(description="`seq` of the first event that is not as it was sealed")]
    problem: str | None


class AuditVerdict(Intact, rename="camel", kw_only=True):
    """The verdict on the whole chain as it stood at `asOf`; a chain that retention has cut starts above 1."""

    purged_through_seq: int
    events: Annotated[int, Meta(description="Events replayed, up to the break where there is one")]
    head: HeadOfLog
    as_of: str
