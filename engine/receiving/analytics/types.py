"""Define the sums that analytics shows."""

from datetime import date, datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class ReportedDomain(Struct, frozen=True):
    """The domain that a report address stands for."""

    id: UUID
    account_id: UUID
    name: str


class Added(StrEnum):
    """The outcome of adding a DMARC or TLS report."""

    COUNTED = "counted"
    KNOWN = "known"  # it was counted before, or the domain is removed
    TOO_MANY = "too_many"  # about this domain on the day of its arrival


class Arrived(Struct, frozen=True):
    """The counted reports about a domain that arrived on a day, and the rows that they stored."""

    reports: int
    stored_rows: int


class DmarcSource(Struct, frozen=True):
    """Messages that one IP address sent under the account's domains, by alignment and disposition."""

    source_ip: str
    messages: int
    aligned: int
    spf_aligned: int
    dkim_aligned: int
    none: int
    quarantine: int
    reject: int
    header_from: list[str]


class FailedStreams(Struct, frozen=True):
    """The streams whose mail had the From domains of an address's unaligned messages, on the days of these messages."""

    source_ip: str
    streams: list[str]


class DmarcTotals(Struct, frozen=True):
    """The sums over all sources of a period."""

    sources: int
    messages: int
    aligned: int
    spf_aligned: int
    dkim_aligned: int
    none: int
    quarantine: int
    reject: int
    reports: int


class TlsSums(Struct, frozen=True):
    """Sessions of one policy of a domain, as receivers of TLS reports count them."""

    domain: str
    policy_type: str
    policy_domain: str
    result_type: str
    sessions: int
    failures: int


class TlsTotals(Struct, frozen=True):
    """The sums over all TLS reports of a period."""

    sessions: int
    failures: int
    reports: int
    last_report_at: datetime | None


class Period(Struct, frozen=True):
    """Consecutive UTC days; `until` is the last one."""

    since: date
    until: date


class GroupBy(StrEnum):
    """The property by which delivery analytics are grouped."""

    DOMAIN = "domain"  # of the recipients
    TAG = "tag"


class CountedEvent(Struct, frozen=True):
    """An event of the log that concerns deliveries."""

    seq: int
    type: str
    message_id: UUID
    occurred_at: datetime
    payload: str


class DeliveryWanted(Struct, frozen=True, kw_only=True):
    """The deliveries asked for; None means all. `from_domains`: the sending domains that the caller may see."""

    by: GroupBy
    period: Period
    streams: list[str] | None = None
    tag: str | None = None
    from_domains: list[str] | None = None


class DeliverySums(Struct, frozen=True):
    """Deliveries of one group by their present outcome; one that was complained about is not in `delivered`."""

    name: str
    deliveries: int
    delivered: int
    bounced: int
    failed: int
    complained: int


class DeliveryFiguresRow(Struct, frozen=True, kw_only=True):
    """A group with its rate and its times from `accepted` to `delivered`."""

    sums: DeliverySums
    settled: int
    delivery_rate: float | None
    p50_ms: int | None
    p95_ms: int | None
    samples: int
