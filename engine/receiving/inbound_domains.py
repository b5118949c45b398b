"""Show and check the domains of an account as receivers of mail: their MX record, DKIM records and claimed addresses.

`domains` limits a caller to these domains; None allows all. The MX record is reported and never enforced; a check
applies what it finds of the DKIM records as any check of the domain does.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base.errors import not_found
from engine.base.plans import caps_of
from engine.base.settings import Settings
from engine.receiving.inbound_addresses import rules
from engine.receiving.inbound_addresses import store as addresses
from engine.sending.domains import store
from engine.sending.domains.types import CheckedRecord, DomainKeyRow, DomainRow
from engine.sending.domains.verification import known_records, verify_now
from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__, "inbound_domains.sql")


class DomainAddresses(Struct, frozen=True):
    """Count the claimed addresses of a domain; `takes_mail`: it receives, and one of them is enabled."""

    domain_id: UUID
    addresses: int
    takes_mail: bool


class ManagedAddresses(Struct, frozen=True):
    """Count the addresses of an account, and those under its managed receiving domain."""

    plan: str
    agreed_caps: str | None
    is_open: bool
    used: int
    addresses: int
    enabled: int


class ManagedDomain(Struct, frozen=True):
    """The managed receiving domain of an account."""

    name: str
    addresses: int
    receiving: bool


class InboundDomainState(Struct, frozen=True):
    """A domain with the records that matter for receiving, as the last check found them."""

    domain: DomainRow
    mx: CheckedRecord
    dkim: list[CheckedRecord]
    addresses: int
    receiving: bool


_ADDRESSES = _SQL.rows("addresses_of_domains", DomainAddresses)
_MANAGED = _SQL.rows("managed_addresses", ManagedAddresses)


async def list_domains(
    pool: asyncpg.Pool,
    settings: Settings,
    account: UUID,
    *,
    before: UUID | None,
    limit: int,
    domains: Collection[str] | None = None,
) -> list[InboundDomainState]:
    """List domains of an account, newest first, verified or not."""
    rows = await store.LIST.fetch(pool, account, before, limit, None if domains is None else list(domains))
    keys: dict[UUID, list[DomainKeyRow]] = {row.id: [] for row in rows}
    for key in await store.PUBLISHED_OF_MANY.fetch(pool, list(keys)):
        keys[key.domain_id].append(key)
    counts = await _counts(pool, list(keys))
    return [_state(row, known_records(settings, row, keys[row.id]), counts[row.id]) for row in rows if row.id in counts]


async def read_domain(
    pool: asyncpg.Pool, settings: Settings, account: UUID, domain: UUID, *, domains: Collection[str] | None = None
) -> InboundDomainState:
    """Return one domain; raise the 404 for an unknown one."""
    row = await _found(pool, account, domain, domains)
    keys = await store.PUBLISHED.fetch(pool, domain)
    return await _with_addresses(pool, row, known_records(settings, row, keys))


async def check_domain(
    pool: asyncpg.Pool, settings: Settings, account: UUID, domain: UUID, *, domains: Collection[str] | None = None
) -> InboundDomainState:
    """Look up the records of a domain now and return it; raise the 404 for an unknown one."""
    await _found(pool, account, domain, domains)
    checked = await verify_now(pool, settings, account, domain)
    return await _with_addresses(pool, checked.domain, checked.records)


async def managed_domain(pool: asyncpg.Pool, settings: Settings, account: UUID) -> ManagedDomain | None:
    """Return the managed receiving domain, None if the plan includes no inbound address and the domain has none.

    It takes mail from the start: the first mail claims its catch-all address where the plan has room.
    """
    label = await addresses.LABEL_OF.first(pool, account)
    if label is None:
        return None
    name = rules.managed_domain(label.label, settings.mail_host)
    counts = await _MANAGED.first(pool, account, name)
    limit = 0 if counts is None else caps_of(counts.plan, counts.agreed_caps).inbound_addresses
    if counts is None or (limit == 0 and counts.addresses == 0):
        return None
    return ManagedDomain(name, counts.addresses, counts.enabled > 0 or (not counts.is_open and counts.used < limit))


async def _found(source: Source, account: UUID, domain: UUID, domains: Collection[str] | None) -> DomainRow:
    row = await store.FIND.first(source, account, domain)
    if row is None or (domains is not None and row.name not in domains):
        raise not_found("domain")
    return row


async def _with_addresses(source: Source, row: DomainRow, checks: Sequence[CheckedRecord]) -> InboundDomainState:
    counts = await _counts(source, [row.id])
    return _state(row, checks, counts.get(row.id) or DomainAddresses(row.id, 0, takes_mail=False))


async def _counts(source: Source, domains: Sequence[UUID]) -> dict[UUID, DomainAddresses]:
    return {one.domain_id: one for one in await _ADDRESSES.fetch(source, domains)}


def _state(row: DomainRow, checks: Sequence[CheckedRecord], counts: DomainAddresses) -> InboundDomainState:
    (mx,) = [check for check in checks if check.wanted.purpose == "inbound"]
    dkim = [check for check in checks if check.wanted.purpose == "dkim"]
    receiving = mx.finding.status == "ok" and counts.takes_mail
    return InboundDomainState(row, mx, dkim, counts.addresses, receiving)
