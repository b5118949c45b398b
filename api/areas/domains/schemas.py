"""Requests and replies of sending domains and of publishing their records."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.sending.domains.publishing import Outcome
from engine.sending.domains.types import (
    DEFAULT_RETURN_PATH_LABEL,
    DomainStatus,
    Purpose,
    RecordStatus,
    RecordType,
    ReturnPathState,
)

MAX_NAME = 320  # characters as given; as A-labels, with the labels of the records, it must fit into DNS


ReturnPathLabel = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=63,
        description="First label of the host that receives bounces of the domain's mail, such as bounce.example.com",
        examples=["bounce"],
    ),
]


class NewDomain(Struct, forbid_unknown_fields=True, rename="camel"):
    """A domain to send from."""

    name: Annotated[
        str, Meta(min_length=1, max_length=MAX_NAME, description="In any case and IDN form", examples=["example.com"])
    ]
    return_path_label: ReturnPathLabel = DEFAULT_RETURN_PATH_LABEL


class DomainChange(Struct, forbid_unknown_fields=True, rename="camel"):
    """Changes to a sending domain; omitted fields stay as they are."""

    return_path_label: ReturnPathLabel | None = None


class DomainsQuery(Struct, forbid_unknown_fields=True, rename="camel"):
    """The query of `GET /v1/domains`: newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 100
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None


class Record(Struct, rename="camel"):
    """A DNS record to publish, and the values that the last check found at its name."""

    type: RecordType
    host: str
    value: str
    required: bool
    status: RecordStatus
    found: list[str]
    purpose: Purpose
    note: Annotated[str | None, Meta(description="The purpose of the record, or a warning about it")]
    problem: Annotated[
        str | None,
        Meta(description="Why the last check got no result; `status` and `found` are then from an earlier one"),
    ]
    mistake: Annotated[
        str | None,
        Meta(description="What is wrong with the published record and how to correct it, if known"),
    ]


class Signing(Struct, rename="camel"):
    """The selectors whose keys sign now, will sign next, and no longer sign."""

    selector: str | None
    next: Annotated[
        str | None, Meta(description="The next selector; signing moves to it once a check finds its record")
    ]
    retiring: Annotated[
        str | None, Meta(description="The previous selector; keep its record published until `retiresAt`")
    ]
    retires_at: str | None


class ReturnPath(Struct, rename="camel"):
    """The host of a domain's own return paths; mail uses it while `status` is `verified`."""

    label: str
    host: str
    status: ReturnPathState


class Domain(Struct, rename="camel", kw_only=True):
    """A sending domain with its DNS records as the last check found them."""

    id: str
    name: str
    status: DomainStatus
    created_at: str
    verified_at: str | None
    last_checked_at: str | None
    signing: Signing
    return_path: Annotated[
        ReturnPath, Meta(description="Where bounces of the domain's mail go: its own host, once its record is found")
    ]
    records: Annotated[list[Record], Meta(description="The records that the owner of the domain publishes")]
    operator_records: Annotated[
        list[Record],
        Meta(description="The records that the operator of this service publishes for all domains; you need not"),
    ]


class DomainSetup(Domain, kw_only=True):
    """A domain with the company that hosts its DNS."""

    dns_host: Annotated[
        str | None,
        Meta(
            description="By the name servers of its zone; null if they are unknown or DNS gave no answer",
            examples=["Cloudflare"],
        ),
    ]


class CheckedDomain(Domain, kw_only=True):
    """A domain right after a check; `notice` says what the check could not decide, or why signatures would fail."""

    notice: str | None


class DomainPage(Struct, rename="camel"):
    """Domains, newest first. `nextCursor` is null on the last page."""

    data: list[Domain]
    next_cursor: str | None


class Publish(Struct, forbid_unknown_fields=True, rename="camel"):
    """A Cloudflare API token that may read the zone and edit its DNS records; it is stored encrypted, so send it only
    once."""

    token: Annotated[str, Meta(min_length=1, max_length=400)] | None = None


class PublishedRecord(Struct, rename="camel"):
    """The result for one record in the zone; `reason` says what to do, if anything."""

    type: RecordType
    host: str
    value: str
    required: bool
    outcome: Outcome
    reason: str | None


class Publication(Struct, rename="camel"):
    """The result of publishing the domain's records. Records of others in the zone stay unchanged."""

    provider: Literal["cloudflare"]
    zone: str
    records: list[PublishedRecord]
