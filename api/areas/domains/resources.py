"""`/v1/domains`: adding, listing, checking and removing sending domains, their keys, and publishing their records."""

import re
from collections.abc import Sequence
from typing import Any, cast

from api.areas.domains.schemas import (
    CheckedDomain,
    Domain,
    DomainChange,
    DomainPage,
    DomainSetup,
    DomainsQuery,
    NewDomain,
    Publication,
    Publish,
    PublishedRecord,
    Record,
    ReturnPath,
    Signing,
)
from api.http import owner_checks
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.base.errors import ErrorType, existing, invalid, not_found
from engine.base.list_filters import narrowed
from engine.receiving.remove_domain import remove_domain
from engine.sending.domains import rules, store
from engine.sending.domains.dns_hosts import dns_host
from engine.sending.domains.key_rotation import rotate_keys
from engine.sending.domains.mistakes import mistake
from engine.sending.domains.publish_dns import forget_token, publish_dns
from engine.sending.domains.service import KEYS_DEADLINE_S, add_domain, change_domain
from engine.sending.domains.types import CheckedRecord, DomainKeyRow, DomainRow, DomainStatus, ReturnPathState
from engine.sending.domains.verification import Verified, known_records, verify_now

_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)  # the characters that an HTTP header allows


async def create_domain(call: Call, body: NewDomain) -> Domain:
    """Add a domain, which is pending until its records are found."""
    made = await add_domain(
        call.services.pool,
        call.settings,
        call.account_id,
        body.name,
        return_path_label=body.return_path_label,
        actor=call.actor,
    )
    row = await store.FIND.first(call.services.pool, call.account_id, made.id)
    if row is None:  # removed meanwhile by another request
        raise not_found("domain")
    return Domain(**await _with_keys(call, row))


async def list_domains(call: Call, page: Page) -> DomainPage:
    """Return a page of the account's domains."""
    names = narrowed(None, call.domains)
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, page.probe, names)
    keys: dict[Any, list[DomainKeyRow]] = {row.id: [] for row in rows[: page.limit]}
    for key in await store.PUBLISHED_OF_MANY.fetch(call.services.pool, list(keys)):
        keys[key.domain_id].append(key)

    def shown(row: DomainRow) -> Domain:
        return Domain(**_fields(row, keys[row.id], known_records(call.settings, row, keys[row.id])))

    return DomainPage(*page.of(rows, shown))


async def read_domain(call: Call) -> DomainSetup:
    """Return one domain, with the host of its DNS."""
    row = await _found(call)
    return DomainSetup(**await _with_keys(call, row), dns_host=await dns_host(call.services.resolver, row.name))


async def verify_domain(call: Call) -> CheckedDomain:
    """Look up the domain's records now."""
    return _checked(await verify_now(call.services.pool, call.settings, call.account_id, call.id))


async def rotate_domain(call: Call) -> CheckedDomain:
    """Begin a change of the signing keys to the other selector."""
    rotated = await rotate_keys(call.services.pool, call.settings, call.account_id, call.id, actor=call.actor)
    return _checked(rotated)


async def update_domain(call: Call, body: DomainChange) -> Domain:
    """Change a domain."""
    await change_domain(
        call.services.pool, call.account_id, call.id, return_path_label=body.return_path_label, actor=call.actor
    )
    return Domain(**await _with_keys(call, await _found(call)))


async def delete_domain(call: Call) -> None:
    """Remove a domain."""
    await remove_domain(call.services.pool, call.account_id, call.id, actor=call.actor)


async def publish_domain(call: Call, body: Publish) -> Publication:
    """Publish the domain's records through Cloudflare."""
    token = None if body.token is None else body.token.strip(" ")
    if token is not None and not _TOKEN.fullmatch(token):
        raise invalid("token", "`token` is not a Cloudflare token: it contains a character that tokens never have.")
    done = await publish_dns(
        call.services.pool,
        call.settings,
        call.account_id,
        call.id,
        token,
        keeps_token=call.domains is None,  # the stored token serves all domains of the account
        actor=call.actor,
    )
    return Publication(
        "cloudflare",
        done.zone,
        [
            PublishedRecord(
                one.wanted.type, one.wanted.host, one.wanted.value, one.wanted.required, one.outcome, one.reason
            )
            for one in done.records
        ],
    )


async def disconnect_cloudflare(call: Call) -> None:
    """Delete the stored Cloudflare token."""
    await forget_token(call.services.pool, call.account_id, actor=call.actor)


async def _found(call: Call) -> DomainRow:
    return existing(await store.FIND.first(call.services.pool, call.account_id, call.id), "domain")


async def _with_keys(call: Call, row: DomainRow) -> dict[str, Any]:
    keys = await store.PUBLISHED.fetch(call.services.pool, row.id)
    return _fields(row, keys, known_records(call.settings, row, keys))


def _checked(verified: Verified) -> CheckedDomain:
    return CheckedDomain(**_fields(verified.domain, verified.keys, verified.records), notice=verified.notice)


def _fields(row: DomainRow, keys: Sequence[DomainKeyRow], checks: Sequence[CheckedRecord]) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.Kind.DOMAIN, row.id),
        "name": row.name,
        "status": cast("DomainStatus", row.status),
        "created_at": clock.iso(row.created_at),
        "verified_at": clock.iso_or_none(row.verified_at),
        "last_checked_at": clock.iso_or_none(row.checked_at),
        "signing": _signing(keys),
        "return_path": ReturnPath(
            row.return_path_label, row.return_path_host, cast("ReturnPathState", row.return_path)
        ),
        "records": [_record(check, row.name) for check in checks if not check.wanted.by_operator],
        "operator_records": [_record(check, row.name) for check in checks if check.wanted.by_operator],
    }


def _signing(keys: Sequence[DomainKeyRow]) -> Signing:
    retiring = next((key for key in keys if key.is_rsa and key.status == "retiring"), None)
    return Signing(
        rules.signing_pair(keys),
        rules.next_pair(keys),
        None if retiring is None else retiring.selector,
        None if retiring is None else clock.iso_or_none(retiring.retire_at),
    )


def _record(check: CheckedRecord, name: str) -> Record:
    wanted, finding = check.wanted, check.finding
    return Record(
        wanted.type,
        wanted.host,
        wanted.value,
        wanted.required,
        finding.status,
        list(finding.found),
        wanted.purpose,
        wanted.note,
        finding.problem,
        mistake(wanted, finding, name),
    )


_KEYS = Area(
    "Domains",
    reads=("domains:read",),
    writes=("domains:write",),
    limited_keys=LimitedKeys.OWN_DOMAINS,
    owner_check=owner_checks.domain,
    id_of=ids.Kind.DOMAIN,
)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/domains",
        create_domain,
        "Add a sending domain",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        success=201,
        deadline_s=KEYS_DEADLINE_S,
        refusals=(ErrorType.PLAN_LIMIT_REACHED, ErrorType.CONFLICT, ErrorType.NOT_FOUND),
    ),
    Operation(
        "GET",
        "/v1/domains",
        list_domains,
        "List sending domains",
        _KEYS,
        page=ids.Kind.DOMAIN,
        query=DomainsQuery,
        limited_keys=LimitedKeys.OWN,
        lagging=True,
    ),
    Operation("GET", "/v1/domains/{id}", read_domain, "Read a sending domain", _KEYS, limited_keys=LimitedKeys.OWN),
    Operation(
        "PATCH", "/v1/domains/{id}", update_domain, "Change a sending domain", _KEYS, refusals=(ErrorType.NOT_FOUND,)
    ),
    Operation(
        "DELETE",
        "/v1/domains/{id}",
        delete_domain,
        "Remove a sending domain; messages accepted from it are still delivered",
        _KEYS,
    ),
    Operation(
        "GET",
        "/v1/domains/{id}/setup",
        read_domain,
        "Read the DNS records to publish, as the last check found them",
        _KEYS,
        limited_keys=LimitedKeys.OWN,
    ),
    Operation("POST", "/v1/domains/{id}/verify", verify_domain, "Look up the DNS records now", _KEYS),
    Operation(
        "POST",
        "/v1/domains/{id}/rotate",
        rotate_domain,
        "Change the signing keys: the other selector takes over once its record is published",
        _KEYS,
        deadline_s=KEYS_DEADLINE_S,
        refusals=(ErrorType.INVALID_STATE,),
    ),
    Operation(
        "POST", "/v1/domains/{id}/cloudflare", publish_domain, "Publish the DNS records through Cloudflare", _KEYS
    ),
    Operation(
        "DELETE",
        "/v1/account/cloudflare",
        disconnect_cloudflare,
        "Delete the stored Cloudflare token",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        refusals=(ErrorType.NOT_FOUND,),
    ),
)
