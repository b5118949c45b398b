"""Requests and replies of the audit: the account log as it was hashed, and the result of its verification."""

from typing import Annotated, Literal

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


class AuditQuery(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The query of `GET /v1/audit/events`: newest first."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 100
    before: Annotated[int, Meta(ge=1, le=MAX_SEQ, description="`nextCursor` of the previous page: a `seq`")] | None = (
        None
    )
    type: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    by: (
        Annotated[
            Literal["people", "keys"],
            Meta(description="Only what people (members and the operator) did, or only what API keys did"),
        ]
        | None
    ) = None
    from_: Moment | None = None
    until: Moment | None = None


class AuditExportQuery(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The query of `GET /v1/audit/export`: oldest first."""

    from_: Moment | None = None
    until: Moment | None = None


class AuditEvent(Struct, rename="camel"):
    """An event as it was hashed: `payload` and `occurredAt` are the exact texts that went into the hash."""

    seq: int
    id: str
    type: str
    occurred_at: str
    payload: Annotated[
        str | None, Meta(description="JSON text with `type`, `messageId` and `detail`; null after an erasure")
    ]
    hash: Digest
    prev_hash: Annotated[
        Digest | None, Meta(description="Hash of the previous event; null if a break in the log removed it")
    ]


class AuditPage(Struct, rename="camel"):
    """Events, newest first. Pages may be short; `nextCursor` is null on the last one."""

    data: list[AuditEvent]
    next_cursor: str | None


class HashedBy(Struct, rename="camel"):
    """The formula of each event's hash."""

    algorithm: str
    encoding: str
    formula: str
    first_prev_hash: Digest


class HeadOfLog(Struct, rename="camel"):
    """The last event of the log."""

    seq: int
    hash: Digest


class ExportHeader(Struct, rename="camel", tag_field="record", tag="header", kw_only=True):
    """The first record of an export."""

    account: str
    created_at: str
    from_: str | None
    until: str | None
    hash: HashedBy
    head: HeadOfLog
    purged_through_seq: int
    purged_hash: Annotated[Digest, Meta(description="`prevHash` of the first retained event")]


class ExportedEvent(Struct, rename="camel", tag_field="record", tag="event", kw_only=True):
    """A record of an export between the first and the last."""

    seq: int
    id: str
    type: str
    occurred_at: str
    payload: Annotated[str | None, Meta(description="Null after an erasure: this hash can't be recomputed")]
    hash: Digest
    prev_hash: Digest | None


class ExportTrailer(Struct, rename="camel", tag_field="record", tag="trailer", kw_only=True):
    """The last record of an export; a file without it is incomplete."""

    events: Annotated[int, Meta(description="Number of event records in this file")]
    intact: bool
    broken_at: int | None
    problem: str | None


ExportRecord = ExportHeader | ExportedEvent | ExportTrailer


class Intact(Struct, rename="camel"):
    """The result of the verification, without details."""

    intact: bool
    broken_at: Annotated[int | None, Meta(description="`seq` of the first event that does not match its hash")]
    problem: str | None


class AuditVerdict(Intact, rename="camel", kw_only=True):
    """The result of verifying the whole chain as of `asOf`; a chain shortened by retention starts above 1."""

    purged_through_seq: int
    events: Annotated[int, Meta(description="Number of verified events, up to the first mismatch")]
    erased_entries: Annotated[
        int, Meta(description="Of these, entries whose payload an erasure removed: only their links are verified")
    ]
    head: HeadOfLog
    as_of: str
