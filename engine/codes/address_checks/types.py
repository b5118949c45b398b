"""Define the results of address checks and the rows of their charges."""

from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class AddressVerdict(StrEnum):
    """The verdict on an address, the worst first."""

    UNDELIVERABLE = "undeliverable"
    UNKNOWN = "unknown"
    RISKY = "risky"
    DELIVERABLE = "deliverable"


class CheckReason(StrEnum):
    """Why an address is not plainly deliverable."""

    SYNTAX = "syntax"
    NO_DOMAIN = "no_domain"
    NULL_MX = "null_mx"
    NO_MAIL_SERVER = "no_mail_server"
    SUPPRESSED = "suppressed"
    UNSUBSCRIBED = "unsubscribed"
    DNS = "dns"
    ROLE = "role"
    DISPOSABLE = "disposable"


class MailRoute(StrEnum):
    """The DNS findings about mail to a domain."""

    SERVER = "server"
    NULL_MX = "null_mx"
    NO_SERVER = "no_server"
    NO_DOMAIN = "no_domain"
    UNREACHABLE = "unreachable"  # no answer, or none that can be used


class Checks(Struct, frozen=True, rename="camel", kw_only=True):
    """Each check on its own; null if it was not reached.

    `mx`: a mail server exists, by MX or, where there is none, by an address record. `relay`: a privacy relay, which is
    not `disposable`. `suppressed`: for all mail; an address that only unsubscribed is not.
    """

    syntax: bool
    domain: bool | None = None
    mx: bool | None = None
    null_mx: bool | None = None
    disposable: bool | None = None
    role: bool | None = None
    suppressed: bool | None = None
    relay: bool | None = None


class AddressCheck(Struct, frozen=True, kw_only=True):
    """The result for one address; `suggestion` corrects a common typing error of the domain."""

    address: str
    normalized: str | None
    verdict: AddressVerdict
    reason: CheckReason | None
    checks: Checks
    suggestion: str | None


class CheckedBatch(Struct, frozen=True):
    """The results in the order of the request, and how many of them count against the month."""

    results: list[AddressCheck]
    charged: int


class PayerRow(Struct, frozen=True):
    """The account that pays, its plan, and its limits above that."""

    id: UUID
    plan: str
    agreed_caps: str | None
    used: int
