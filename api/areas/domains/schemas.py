"""Wire shapes of sending domains and of publishing their records."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.areas.domains.publishing import Outcome
from engine.areas.domains.types import DomainStatus, Purpose, RecordStatus, RecordType

MAX_NAME = 320  # characters as given; in A-labels with the records' own labels it must fit DNS


class NewDomain(Struct, forbid_unknown_fields=True, rename="camel"):
    """A domain to send from."""

    name: Annotated[
        str, Meta(min_length=1, max_length=MAX_NAME, description="In any case and IDN form", examples=["example.com"])
    ]


class DomainsQuery(Struct, forbid_unknown_fields=True, rename="camel"):
    """`GET /v1/domains`: newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 100
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the page before")] | None = None


class Record(Struct, rename="camel"):
    """A DNS record to publish, and what the last check found at its place."""

    type: RecordType
    host: str
    value: str
    required: bool
    status: RecordStatus
    found: list[str]
    purpose: Purpose
    note: Annotated[str | None, Meta(description="What the record is for, or what to mind")]
    problem: Annotated[
        str | None, Meta(description="Why the last check learned nothing: `status` and `found` are then older")
    ]


class Signing(Struct, rename="camel"):
    """The selectors whose keys sign, take over, and step down."""

    selector: str | None
    next: Annotated[str | None, Meta(description="Signing moves to it as soon as its record is found published")]
    retiring: Annotated[str | None, Meta(description="To be kept published until `retiresAt`")]
    retires_at: str | None


class Domain(Struct, rename="camel", kw_only=True):
    """A sending domain with the records of its set-up as the last check found them."""

    id: str
    name: str
    status: DomainStatus
    created_at: str
    verified_at: str | None
    last_checked_at: str | None
    signing: Signing
    records: Annotated[list[Record], Meta(description="What the owner of the domain publishes")]
    operator_records: Annotated[
        list[Record],
        Meta(description="What the operator of this service publishes for all domains; not your task"),
    ]


class CheckedDomain(Domain, kw_only=True):
    """A domain right after a check; `notice` says where the check decided less than it might have."""

    notice: str | None


class DomainPage(Struct, rename="camel"):
    """Domains, newest first. `nextCursor` is null on the last page."""

    data: list[Domain]
    next_cursor: str | None


class Publish(Struct, forbid_unknown_fields=True, rename="camel"):
    """A Cloudflare API token that may read the zone and edit its DNS records; kept sealed, so needed only once."""

    token: Annotated[str, Meta(min_length=1, max_length=400)] | None = None


class PublishedRecord(Struct, rename="camel"):
    """What became of one record in the zone; `reason` says what to do where that is something."""

    type: RecordType
    host: str
    value: str
    required: bool
    outcome: Outcome
    reason: str | None


class Publication(Struct, rename="camel"):
    """What became of the domain's records. Nothing that others put into the zone was changed."""

    provider: Literal["cloudflare"]
    zone: str
    records: list[PublishedRecord]
