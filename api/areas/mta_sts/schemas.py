"""Requests and replies of hosted MTA-STS policies."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.receiving.mta_sts.types import (
    MAX_MAX_AGE_S,
    MIN_MAX_AGE_S,
    AliasStatus,
    CertificateStatus,
    StsMode,
    TxtStatus,
)


class MtaStsPolicyIn(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The policy of a domain."""

    mode: StsMode
    max_age: (
        Annotated[
            int,
            Meta(
                ge=MIN_MAX_AGE_S,
                le=MAX_MAX_AGE_S,
                description="Seconds for which senders keep the policy; omitted: as before, 604800 for a new policy",
            ),
        ]
        | None
    ) = None


class TlsReportTotals(Struct, rename="camel"):
    """The TLS reports (RFC 8460) of the last 30 days about the domain, added up."""

    sessions: int
    failures: int
    last_report_at: str | None


class MtaStsPolicy(Struct, rename="camel", kw_only=True):
    """A hosted policy, and what senders find of it in DNS and at its host.

    `live` is true if `cname`, `txt` and `certificate` are all `ok`.
    """

    domain: str
    mode: StsMode
    max_age: int
    policy_id: Annotated[str, Meta(description="Publish it in the TXT record of `_mta-sts.<domain>`: v=STSv1; id=…")]
    mx: Annotated[list[str], Meta(description="The mail servers that the policy allows")]
    url: str
    cname: AliasStatus
    txt: TxtStatus
    certificate: CertificateStatus
    live: bool
    warnings: list[str]
    updated_at: str
    checked_at: str | None
    tls_reports: TlsReportTotals


class MtaStsPage(Struct, rename="camel"):
    """Hosted policies, newest domain first. `nextCursor` is null on the last page."""

    data: list[MtaStsPolicy]
    next_cursor: str | None
