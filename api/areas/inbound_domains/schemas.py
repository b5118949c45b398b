"""Requests and replies of receiving domains."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.sending.domains.types import DomainStatus, RecordStatus, RecordType


class MxRecord(Struct, rename="camel", kw_only=True):
    """The MX record to publish, and the mail servers that the last check found; it is reported, never enforced."""

    type: Literal["MX"]
    host: str
    value: str
    priority: int
    status: RecordStatus
    found: list[str]


class DkimRecord(Struct, rename="camel", kw_only=True):
    """A DKIM record to publish, and what the last check found at its name."""

    type: RecordType
    host: str
    value: str
    required: bool
    status: RecordStatus
    found: list[str]


class InboundDomain(Struct, rename="camel", kw_only=True):
    """A domain of the account. `receiving`: its MX record is right and one of its addresses is enabled."""

    id: str
    name: str
    status: DomainStatus
    mx: MxRecord
    receiving: bool
    addresses: Annotated[int, Meta(description="Claimed addresses under the domain")]
    checked_at: str | None


class InboundDomainWithRecords(InboundDomain, kw_only=True):
    """A domain of the account with its DKIM records."""

    dkim: list[DkimRecord]


class ManagedInboundDomain(Struct, rename="camel", kw_only=True):
    """The managed receiving domain: any address under it receives, without a claim and without DNS.

    Its first mail claims its catch-all address `*@name`, which counts as one address.
    """

    name: str
    addresses: Annotated[int, Meta(description="Claimed addresses under the domain")]
    receiving: bool


class InboundDomainPage(Struct, rename="camel"):
    """Domains, newest first. `nextCursor` is null on the last page; `managed` if the plan includes no inbound mail."""

    data: list[InboundDomain]
    next_cursor: str | None
    managed: ManagedInboundDomain | None
