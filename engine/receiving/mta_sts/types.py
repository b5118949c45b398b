"""Define hosted MTA-STS policies and the results of checking what they need."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

StsMode = Literal["none", "testing", "enforce"]
AliasStatus = Literal["ok", "missing", "mismatch"]
TxtStatus = Literal["ok", "missing", "stale", "invalid"]
CertificateStatus = Literal["ok", "missing", "expired", "mismatch", "untrusted", "unreachable"]

MIN_MAX_AGE_S = 86_400
MAX_MAX_AGE_S = 31_557_600  # about a year: RFC 8461 3.2
DEFAULT_MAX_AGE_S = 604_800


class HostedPolicyRow(Struct, frozen=True):
    """A policy with the name of its domain; `findings` is the JSON text of the last check.

    `sessions`, `failures` and `last_report_at` come from the TLS reports (RFC 8460) of the last 30 days.
    """

    domain_id: UUID
    account_id: UUID
    domain: str
    mode: str
    max_age_s: int
    policy_id: str
    updated_at: datetime
    checked_at: datetime | None
    findings: str | None
    sessions: int
    failures: int
    last_report_at: datetime | None


class ServedPolicy(Struct, frozen=True):
    """The answer of the policy host of a domain."""

    mode: str
    max_age_s: int


class StsFindings(Struct, frozen=True):
    """The results of one check; `mx_ours` is None if DNS gave no answer.

    `problem` says why a part of the check got no answer; that part is then from an earlier check. `wildcard`: the alias
    answers for any name below the domain, so it was not published for the policy.
    """

    cname: AliasStatus = "missing"
    txt: TxtStatus = "missing"
    certificate: CertificateStatus = "unreachable"
    mx_ours: bool | None = None
    foreign_mx: tuple[str, ...] = ()
    wildcard: bool = False
    problem: str | None = None

    @property
    def live(self) -> bool:
        """Return True if senders can use the policy: alias, TXT record and certificate are right."""
        return self.cname == self.txt == self.certificate == "ok"
