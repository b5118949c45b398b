"""`/v1/inbound/mta-sts`: listing, setting and checking hosted MTA-STS policies."""

from typing import cast

from api.areas.mta_sts.schemas import (
    MtaStsPage,
    MtaStsPolicy,
    MtaStsPolicyIn,
    TlsReportTotals,
)
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.base.errors import ErrorType, not_found
from engine.mail.address import BadAddress, domain_name
from engine.receiving.mta_sts import policies as mta_sts
from engine.receiving.mta_sts import rules, store
from engine.receiving.mta_sts.types import HostedPolicyRow, StsMode


async def list_policies(call: Call, page: Page) -> MtaStsPage:
    """Return a page of the account's policies with the results of their last checks."""
    named = None if call.reach is None or call.reach.domains is None else sorted(call.reach.domains)
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, page.probe, named)
    shown = rows[: page.limit]
    more = len(rows) > page.limit
    return MtaStsPage([_policy(call, row) for row in shown], mta_sts.public_id(shown[-1]) if more else None)


async def put_policy(call: Call, body: MtaStsPolicyIn) -> MtaStsPolicy:
    """Set the policy of a domain."""
    row = await mta_sts.put_policy(
        call.services.pool,
        call.account_id,
        _name(call),
        mode=body.mode,
        max_age_s=body.max_age,
        reach=call.reach,
        actor=call.actor,
    )
    return _policy(call, row)


async def verify_policy(call: Call) -> MtaStsPolicy:
    """Look up the records and the certificate of a policy now."""
    row = await mta_sts.check_policy(call.services.pool, call.settings, call.account_id, _name(call), reach=call.reach)
    return _policy(call, row)


def _name(call: Call) -> str:
    try:
        return domain_name(call.path["domain"])
    except BadAddress:
        raise not_found("domain") from None


def _policy(call: Call, row: HostedPolicyRow) -> MtaStsPolicy:
    findings = rules.decoded(row.findings)
    return MtaStsPolicy(
        domain=row.domain,
        mode=cast("StsMode", row.mode),
        max_age=row.max_age_s,
        policy_id=row.policy_id,
        mx=[call.settings.mail_host.lower()],
        url=f"https://{rules.HOST_LABEL}{row.domain}{rules.POLICY_PATH}",
        cname=findings.cname,
        txt=findings.txt,
        certificate=findings.certificate,
        live=findings.live,
        warnings=rules.warnings_of(row, findings),
        updated_at=clock.iso(row.updated_at),
        checked_at=clock.iso_or_none(row.checked_at),
        tls_reports=TlsReportTotals(row.sessions, row.failures, clock.iso_or_none(row.last_report_at)),
    )


_KEYS = Area(
    "Inbound",
    reads=("inbound:read", "domains:read"),
    writes=("inbound:write", "domains:write"),
    limited_keys=LimitedKeys.OWN,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/inbound/mta-sts",
        list_policies,
        "List hosted MTA-STS policies",
        _KEYS,
        page=ids.Kind.DOMAIN,
        lagging=True,
    ),
    Operation(
        "PUT",
        "/v1/inbound/mta-sts/{domain}",
        put_policy,
        "Set the MTA-STS policy of a domain; publish its new `policyId` in DNS afterwards",
        _KEYS,
        refusals=(ErrorType.NOT_FOUND, ErrorType.DOMAIN_NOT_VERIFIED),
    ),
    Operation(
        "POST",
        "/v1/inbound/mta-sts/{domain}/verify",
        verify_policy,
        "Check the DNS records and the certificate of an MTA-STS policy now",
        _KEYS,
        refusals=(ErrorType.NOT_FOUND,),
    ),
)
