"""Requests and replies of analytics. Days are UTC days, today included; times are ISO 8601, UTC."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.http.waits import WaitCauses
from engine.base.plans import MAX_AGREED_DAYS
from engine.receiving.analytics.rules import MAX_DAYS

Share = Annotated[float, Meta(ge=0, le=1)]
Provider = Literal["google", "microsoft", "yahoo", "apple", "other"]
DomainName = Annotated[str, Meta(min_length=1, max_length=253, description="A domain of the account; default: all")]


class DeliveryQuery(Struct, rename="camel", forbid_unknown_fields=True):
    """The query of `GET /v1/analytics/delivery`."""

    days: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_AGREED_DAYS,
            description=f"UTC days, today included; the plan limits them. Above {MAX_DAYS} only by agreement",
        ),
    ] = 7
    group_by: Annotated[Literal["domain", "tag"], Meta(description="Rows by recipients' domain, or by tag")] = "domain"
    stream: Annotated[str, Meta(min_length=1, max_length=64, description="Only mail of this stream")] | None = None
    tag: Annotated[str, Meta(min_length=1, max_length=64, description="Only mail with this tag")] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: Annotated[str, Meta(min_length=1, max_length=200, description="`nextCursor` of the page before")] | None = (
        None
    )


class DeliveryFigures(Struct, rename="camel", kw_only=True):
    """Deliveries (recipients of messages) accepted in the period.

    `settled`: delivered, bounced, failed and complained about; one that was complained about is not in `delivered`.
    `deliveryRate` is the share of `settled` that was delivered, complaints included; null if nothing is settled.
    `p50Ms` and `p95Ms` are the times from acceptance to delivery in milliseconds, within 1%, of `samples` deliveries;
    null without any. Deliveries that bounced later are no samples. A row has `domain` or `tag`, as `groupBy` asks.
    """

    domain: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    deliveries: int
    settled: int
    delivered: int
    bounced: int
    failed: int
    complained: int
    delivery_rate: Share | None
    p50_ms: int | None
    p95_ms: int | None
    samples: int


class DeliveryReply(Struct, rename="camel", kw_only=True):
    """Rates and times of delivery, the groups with the most deliveries first.

    Deliveries count on the UTC day on which their message was accepted. All pages of one query end at the same `until`.
    """

    group_by: Literal["domain", "tag"]
    days: int
    from_: str
    until: str
    data: list[DeliveryFigures]
    next_cursor: str | None


class ReportsQuery(Struct, forbid_unknown_fields=True):
    """The query of `GET /v1/analytics/dmarc` and `GET /v1/analytics/tls`."""

    days: Annotated[int, Meta(ge=1, le=MAX_DAYS, description="UTC days, today included")] = 30
    domain: DomainName | None = None


class DmarcCounts(Struct, rename="camel", kw_only=True):
    """Messages that receivers reported.

    `aligned`: SPF or DKIM aligned with the From domain. `none`, `quarantine` and `reject` count what receivers did with
    the messages (RFC 7489).
    """

    messages: int
    aligned: int
    alignment_rate: Annotated[Share, Meta(description="`aligned` of `messages`; null without messages")] | None
    spf_aligned: int
    dkim_aligned: int
    none: int
    quarantine: int
    reject: int


class DmarcSourceRow(DmarcCounts, rename="camel", kw_only=True):
    """The messages from one IP address. `ours`: it is an address that this service sends from.

    `failedStreams`: where messages from such an address failed DMARC, the streams on which their From domains sent on
    the days of the failures; reports themselves name no stream.
    """

    source_ip: str
    header_from: Annotated[list[str], Meta(description="The From domains, at most 20")]
    ours: bool
    failed_streams: Annotated[list[str], Meta(description="Streams, at most 20; empty unless `ours`")]


class DmarcOthers(DmarcCounts, rename="camel", kw_only=True):
    """The sums over the `sources` that are not listed."""

    sources: int


class DmarcSummary(Struct, rename="camel", kw_only=True):
    """The summary of the DMARC aggregate reports of a period, the largest sources first, at most 100 of them.

    Rows count on the UTC day on which the report begins. `alignmentRate` is null if no reports have arrived.
    """

    days: int
    from_: str
    until: str
    domain: str | None
    messages: int
    aligned: int
    alignment_rate: Share | None
    reports: int
    data: list[DmarcSourceRow]
    others: DmarcOthers | None


class TlsFailureRow(Struct, rename="camel", kw_only=True):
    """Failed sessions of one kind, such as `certificate-expired` (RFC 8460 4.3)."""

    result_type: str
    failures: int


class TlsPolicyRow(Struct, rename="camel", kw_only=True):
    """Sessions to a domain's mail servers under one policy: `sts`, `tlsa` or `no-policy-found`."""

    domain: str
    policy_type: str
    policy_domain: str
    sessions: int
    failures: int
    failure_types: list[TlsFailureRow]


class TlsSummary(Struct, rename="camel", kw_only=True):
    """The summary of the TLS reports of a period. `successRate` is null if no session was reported."""

    days: int
    from_: str
    until: str
    domain: str | None
    sessions: int
    failures: int
    success_rate: Share | None
    reports: int
    last_report_at: str | None
    data: list[TlsPolicyRow]


class ProviderFigures(Struct, rename="camel", kw_only=True):
    """Outcomes of deliveries (recipients of messages), by the UTC day on which their message was accepted.

    The fields are those of `GET /v1/analytics/delivery`.
    """

    settled: int
    delivered: int
    bounced: int
    failed: int
    complained: int
    delivery_rate: Share | None
    p50_ms: int | None
    samples: int


class DeferredNow(Struct, rename="camel", kw_only=True):
    """Messages that wait for another attempt, `since` the first was deferred.

    `class`, `smtpCode` and `enhancedCode` are of the newest refusal at `domain`, where most of the messages wait; null
    if no server replied.
    """

    messages: Annotated[int, Meta(description="Messages that wait; one to several domains counts at each")]
    since: str
    domain: Annotated[
        str | None, Meta(description="Where most of them wait; null if not known", examples=["contoso.com"])
    ]
    class_: Annotated[str | None, Meta(description="The class of the outcome", examples=["rate"])]
    smtp_code: Annotated[int | None, Meta(description="The code of its reply", examples=[451])]
    enhanced_code: Annotated[
        str | None, Meta(description="The enhanced status code of its reply", examples=["4.7.500"])
    ]


class ProviderRow(Struct, rename="camel", kw_only=True):
    """How mail arrives at one provider of mailboxes; `deferred` is null if nothing waits.

    The mail server of the attempt tells the provider: domains of companies at Google or Microsoft count there.
    """

    provider: Annotated[
        Provider,
        Meta(description="The provider of the mailboxes", examples=["google"]),
    ]
    name: Annotated[str, Meta(description="Its name for people", examples=["Gmail"])]
    today: Annotated[ProviderFigures, Meta(description="Mail accepted today")]
    before: Annotated[ProviderFigures, Meta(description="Mail accepted on the `days` days before")]
    deferred: Annotated[DeferredNow | None, Meta(description="What waits now; null if nothing does")]


class ProviderSummary(Struct, rename="camel", kw_only=True):
    """How mail arrives at each provider: today, from `from`, against the `days` UTC days before today.

    `days` is 7, or less if the plan's window of analytics is shorter. Providers without mail are left out.
    """

    from_: str
    until: str
    days: int
    data: list[ProviderRow]


class WaitsQuery(Struct, rename="camel", forbid_unknown_fields=True):
    """The query of `GET /v1/analytics/waits`."""

    days: Annotated[int, Meta(ge=1, le=MAX_AGREED_DAYS, description="UTC days, today included; by hour at most 7")] = 7
    group_by: Annotated[
        Literal["provider", "hour", "day"], Meta(description="Rows by provider of the mailbox, or by UTC hour or day")
    ] = "provider"
    provider: Annotated[Provider, Meta(description="Only mail to this provider")] | None = None
    stream: Annotated[str, Meta(min_length=1, max_length=64, description="Only mail of this stream")] | None = None


class WaitsTotal(Struct, rename="camel", kw_only=True):
    """The waiting times of attempts, which count in the UTC hour in which they began.

    `causes` are sums in milliseconds. `otherAccountsP95Ms` is the 95th percentile of `otherAccounts` of an attempt,
    within 1%. `fairShare` is the mean of the attempts' fair shares. Both are null without attempts.
    """

    attempts: Annotated[
        int, Meta(ge=0, description="Attempts that opened, or tried to open, a connection", examples=[240])
    ]
    causes: WaitCauses
    fair_share: Annotated[
        Share | None, Meta(description="1 by the number of accounts with mail there", examples=[0.94])
    ]
    other_accounts_p95_ms: Annotated[
        int | None, Meta(description="95% of attempts waited no longer for other accounts", examples=[85])
    ]


class WaitsRow(WaitsTotal, rename="camel", kw_only=True):
    """The waiting times of one provider, or of the hour or day from `begin`, as `groupBy` asks."""

    provider: (
        Annotated[Provider, Meta(description="The provider of the mailboxes", examples=["google"])] | UnsetType
    ) = UNSET
    name: Annotated[str, Meta(description="Its name for people", examples=["Gmail"])] | UnsetType = UNSET
    begin: Annotated[str, Meta(description="The begin of the hour or day")] | UnsetType = UNSET


class WaitsReply(Struct, rename="camel", kw_only=True):
    """Why deliveries waited: in total, and by provider, hour or day. Those without attempts are left out."""

    group_by: Literal["provider", "hour", "day"]
    days: int
    from_: str
    until: str
    total: Annotated[WaitsTotal, Meta(description="All attempts of the period")]
    data: list[WaitsRow]
