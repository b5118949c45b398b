"""Types of blocklist checks: lists, targets, answers and listings."""

from datetime import datetime
from enum import StrEnum
from typing import Literal
from uuid import UUID

from msgspec import Struct

TargetKind = Literal["ip", "domain"]
MeasuredState = Literal["measured", "unknown"]


class ListFamily(StrEnum):
    """Name the kind of target that a blocklist is asked about; each has test entries of its own (RFC 5782, 5)."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"
    DOMAIN = "domain"

    @property
    def kind(self) -> TargetKind:
        """Return the kind of targets of this family."""
        return "domain" if self is ListFamily.DOMAIN else "ip"


class ListAnswer(StrEnum):
    """The meaning of one answer of a list."""

    LISTED = "listed"
    NOT_LISTED = "not_listed"
    UNKNOWN = "unknown"  # no answer, or one that means something else than a listing


class Listing(Struct, frozen=True):
    """A target that a blocklist names now. `zone` is the name of the list."""

    target: str
    kind: str  # a TargetKind
    zone: str
    listed_since: datetime


class AccountListings(Struct, frozen=True):
    """The listings that concern an account, and whether recent checks support them."""

    listings: tuple[Listing, ...]
    measured_state: MeasuredState


class DomainListing(Struct, frozen=True):
    """A listing of a verified domain, with the account that holds the domain."""

    account_id: UUID
    target: str
    kind: str  # a TargetKind
    zone: str
    listed_since: datetime

    @property
    def listing(self) -> Listing:
        """Return the listing without the account."""
        return Listing(self.target, self.kind, self.zone, self.listed_since)


class ListToAsk(Struct, frozen=True):
    """A list of the settings, for one family of targets."""

    name: str
    zone: str
    family: ListFamily


class DueTarget(Struct, frozen=True):
    """An address or domain whose check a worker has claimed; `domain_id` is None for an address."""

    target: str
    domain_id: UUID | None = None


class ListVerdict(Struct, frozen=True):
    """The answer of one list about one target; `addresses` are the A records, for the operator."""

    kind: TargetKind
    target: str
    zone: str
    answer: ListAnswer
    addresses: str = ""


class ListingChange(Struct, frozen=True):
    """A listing that a check began or ended."""

    kind: str  # a TargetKind
    target: str
    zone: str
    change: str  # `listing began` or `listing ended`


class TestedList(Struct, frozen=True):
    """A list as a worker last tested it."""

    name: str
    family: str
    trusted: bool
    detail: str
    tested_at: datetime


class CheckedAddress(Struct, frozen=True):
    """A source address; `measured` is False if no recent check had an answer that can be trusted."""

    ip: str
    checked_at: datetime | None
    measured: bool
    listed_on: list[str]


class OpenListing(Struct, frozen=True):
    """A present listing for the operator; `account_id` holds the domain and is None for an address."""

    kind: str  # a TargetKind
    target: str
    zone: str
    answer: str
    listed_since: datetime
    last_seen: datetime
    account_id: UUID | None


class ListedCounts(Struct, frozen=True):
    """The numbers of addresses and domains that are on a list now."""

    addresses: int
    domains: int
