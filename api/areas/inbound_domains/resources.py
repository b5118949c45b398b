"""`/v1/inbound/domains`: the account's domains as receivers of mail, and the managed receiving domain."""

from typing import Any, cast

from api.areas.inbound_domains.schemas import (
    DkimRecord,
    InboundDomain,
    InboundDomainPage,
    InboundDomainWithRecords,
    ManagedInboundDomain,
    MxRecord,
)
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.receiving import inbound_domains
from engine.receiving.inbound_domains import InboundDomainState
from engine.sending.domains.types import CheckedRecord, DomainStatus


async def list_domains(call: Call, page: Page) -> InboundDomainPage:
    """Return a page of the account's domains, and its managed receiving domain."""
    states = await inbound_domains.list_domains(
        call.services.pool,
        call.settings,
        call.account_id,
        before=page.before,
        limit=page.probe,
        domains=call.domains,
    )
    shown = page.of(states, lambda one: InboundDomain(**_fields(one)))
    return InboundDomainPage(*shown, await _managed(call))


async def read(call: Call) -> InboundDomainWithRecords:
    """Return one domain with its MX and DKIM records."""
    return _with_records(
        await inbound_domains.read_domain(
            call.services.pool, call.settings, call.account_id, call.id, domains=call.domains
        )
    )


async def verify(call: Call) -> InboundDomainWithRecords:
    """Look up the domain's records now."""
    return _with_records(
        await inbound_domains.check_domain(
            call.services.pool, call.settings, call.account_id, call.id, domains=call.domains
        )
    )


async def _managed(call: Call) -> ManagedInboundDomain | None:
    if call.domains is not None:  # the key is limited to domains of the account's own
        return None
    found = await inbound_domains.managed_domain(call.services.pool, call.settings, call.account_id)
    if found is None:
        return None
    return ManagedInboundDomain(name=found.name, addresses=found.addresses, receiving=found.receiving)


def _with_records(state: InboundDomainState) -> InboundDomainWithRecords:
    return InboundDomainWithRecords(**_fields(state), dkim=[_dkim(one) for one in state.dkim])


def _fields(state: InboundDomainState) -> dict[str, Any]:
    row = state.domain
    return {
        "id": ids.format_id(ids.Kind.DOMAIN, row.id),
        "name": row.name,
        "status": cast("DomainStatus", row.status),
        "mx": _mx(state.mx),
        "receiving": state.receiving,
        "addresses": state.addresses,
        "checked_at": clock.iso_or_none(row.checked_at),
    }


def _mx(check: CheckedRecord) -> MxRecord:
    priority, _, host = check.wanted.value.partition(" ")
    return MxRecord(
        type="MX",
        host=check.wanted.host,
        value=host,
        priority=int(priority),
        status=check.finding.status,
        found=list(check.finding.found),
    )


def _dkim(check: CheckedRecord) -> DkimRecord:
    wanted = check.wanted
    return DkimRecord(
        type=wanted.type,
        host=wanted.host,
        value=wanted.value,
        required=wanted.required,
        status=check.finding.status,
        found=list(check.finding.found),
    )


_KEYS = Area(
    "Inbound",
    reads=("inbound:read", "domains:read"),
    writes=("inbound:write", "domains:write"),
    limited_keys=LimitedKeys.OWN,
    id_of=ids.Kind.DOMAIN,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/inbound/domains",
        list_domains,
        "List domains with the MX record to publish, and the managed receiving domain",
        _KEYS,
        page=ids.Kind.DOMAIN,
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/inbound/domains/{id}",
        read,
        "Read a domain's MX and DKIM records, as the last check found them",
        _KEYS,
    ),
    Operation(
        "POST",
        "/v1/inbound/domains/{id}/verify",
        verify,
        "Look up a domain's MX and DKIM records now",
        _KEYS,
        note="The result for DKIM is applied as by `POST /v1/domains/{id}/verify`; MX is only reported.",
    ),
)
