"""Read what alert rules watch: outcomes, the month's allowance, DNS records, blocklists,
webhook endpoints.

Each kind takes a fixed number of statements for a batch of rules. The counts are kept by others: outcomes as the rule
that suspends accounts counts them (without simulated mail), records by the checks of domains, failures of endpoints by
the posts to them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from engine.accounts.alerts import rules
from engine.accounts.alerts.types import MAX_NAMED, AlertKind, AlertReading, AlertRule, UnknownReason
from engine.accounts.suspend import WINDOW
from engine.base import clock, ids
from engine.base.settings import Settings
from engine.events.webhooks.types import FAILING
from engine.ledger import heads, quota
from engine.sending.blocklists import store as blocklists
from engine.sending.blocklists.types import AccountListings, Listing
from engine.sending.domains import drift, verification
from engine.sending.domains import store as domains
from engine.sending.domains.types import CheckedRecord, DomainRow
from engine.sending.statistics.rules import quarter_of
from engine.store.queries import Conn, Queries

MAX_FOUND: Final = 3  # values of one record in a detail
MAX_FOUND_LENGTH: Final = 200

Readings = Mapping[UUID, AlertReading]  # by account


class OutcomeSums(Struct, frozen=True):
    """Sum the outcomes of one account."""

    account_id: UUID
    settled: int
    bounced: int
    complained: int


class DriftSums(Struct, frozen=True):
    """Sum the drifted and unanswered records of one account."""

    account_id: UUID
    drifted: int
    unanswered: int


class FailingEndpoint(Struct, frozen=True):
    """A webhook endpoint that fails; `count` is the number of those of its account."""

    account_id: UUID
    id: UUID
    url: str
    failing_since: datetime | None
    count: int


_SQL = Queries.beside(__file__, "readings.sql")
_OUTCOMES = _SQL.rows("outcome_sums", OutcomeSums)
_DRIFTS = _SQL.rows("drift_sums", DriftSums)
_FAILING = _SQL.rows("failing_webhooks", FailingEndpoint)
_DRIFTED = _SQL.command("drifted_domains")


async def read(connection: Conn, kind: AlertKind, measured: Sequence[AlertRule], at: datetime) -> Readings:
    """Return the reading of each account for its rule; all rules are of one kind, each of another account."""
    return await _READERS[kind](connection, kind, measured, at)


async def with_records(
    connection: Conn, settings: Settings, readings: Readings, accounts: Sequence[UUID]
) -> dict[UUID, dict[str, Any]]:
    """Return the detail of each account; for drifted records their domains, names and values."""
    details = {account: readings[account].detail for account in accounts}
    for row in await _DRIFTED.records(connection, list(accounts), MAX_NAMED):
        domain = await domains.FIND.first(connection, row["account_id"], row["id"])
        if domain is not None:
            keys = await domains.PUBLISHED.fetch(connection, domain.id)
            found = drift.drifted(verification.known_records(settings, domain, keys))
            details[domain.account_id] = _with_domain(details[domain.account_id], domain, found)
    return details


async def _rates(connection: Conn, kind: AlertKind, measured: Sequence[AlertRule], at: datetime) -> Readings:
    accounts, days = [one.account_id for one in measured], [one.window_days for one in measured]
    rows = await _OUTCOMES.fetch(connection, accounts, days, quarter_of(at - WINDOW), at.date())
    return {one.account_id: rules.rate(kind, one.settled, one.bounced, one.complained) for one in rows}


async def _quota(connection: Conn, _kind: AlertKind, measured: Sequence[AlertRule], at: datetime) -> Readings:
    found = await heads.read_many(connection, [one.account_id for one in measured])
    readings = {}
    for one in measured:
        head = found.get(one.account_id)
        if head is None:  # erased meanwhile
            readings[one.account_id] = AlertReading(None, why=UnknownReason.NO_ALLOWANCE)
            continue
        sent, limit = quota.month_usage(head, at, parent=None if head.parent_id is None else found.get(head.parent_id))
        readings[one.account_id] = rules.usage(sent, limit, f"{at:%Y-%m}")
    return readings


async def _drift(connection: Conn, _kind: AlertKind, measured: Sequence[AlertRule], _at: datetime) -> Readings:
    rows = await _DRIFTS.fetch(connection, [one.account_id for one in measured])
    found = {one.account_id: (one.drifted, one.unanswered) for one in rows}
    return {one.account_id: rules.drift(*found.get(one.account_id, (0, 0)), one.threshold) for one in measured}


async def _blocklists(connection: Conn, _kind: AlertKind, measured: Sequence[AlertRule], at: datetime) -> Readings:
    found = await blocklists.account_listings(connection, [one.account_id for one in measured], at)
    return {account: _listed(one) for account, one in found.items()}


async def _webhooks(connection: Conn, _kind: AlertKind, measured: Sequence[AlertRule], _at: datetime) -> Readings:
    accounts = [one.account_id for one in measured]
    found: dict[UUID, list[FailingEndpoint]] = {account: [] for account in accounts}
    for row in await _FAILING.fetch(connection, accounts, FAILING, MAX_NAMED):
        found[row.account_id].append(row)
    return {account: _failing(rows) for account, rows in found.items()}


def _failing(rows: Sequence[FailingEndpoint]) -> AlertReading:
    """Return the number of failing endpoints of an account."""
    count = rows[0].count if rows else 0
    endpoints = [
        {
            "id": ids.format_id(ids.Kind.WEBHOOK, row.id),
            "url": row.url.partition("?")[0],  # a query may hold a secret
            "failing_since": clock.iso_or_none(row.failing_since),
        }
        for row in rows
    ]
    return AlertReading(float(count), _with_more({"endpoints": endpoints}, count - len(rows)))


def _listed(found: AccountListings) -> AlertReading:
    """Return the number of lists that name the account's domains or the addresses of the service."""
    if found.measured_state != "measured":
        return AlertReading(None, why=UnknownReason.NOT_MEASURED)
    lists = {one.zone for one in found.listings}
    shown = found.listings[:MAX_NAMED]
    detail = {"lists": sorted(lists), "listings": [_listing(one) for one in shown]}
    return AlertReading(float(len(lists)), _with_more(detail, len(found.listings) - len(shown)))


def _listing(one: Listing) -> dict[str, str]:
    return {"list": one.zone, "target": one.target, "kind": one.kind, "since": clock.iso(one.listed_since)}


def _with_domain(detail: dict[str, Any], domain: DomainRow, found: Sequence[CheckedRecord]) -> dict[str, Any]:
    """Return the detail with the drifted records of another domain, MAX_NAMED records in all."""
    listed = list(detail.get("domains", []))
    room = MAX_NAMED - sum(len(one["records"]) for one in listed)
    records = [_record(one) for one in found[: max(0, room)]]
    named = {"id": ids.format_id(ids.Kind.DOMAIN, domain.id), "name": domain.name, "records": records}
    return _with_more(detail | {"domains": [*listed, named]}, detail.get("more", 0) + len(found) - len(records))


def _record(one: CheckedRecord) -> dict[str, Any]:
    found = [text[:MAX_FOUND_LENGTH] for text in one.finding.found[:MAX_FOUND]]
    return {
        "type": one.wanted.type,
        "host": one.wanted.host,
        "value": one.wanted.value,
        "status": one.finding.status,
        "found": found,
    }


def _with_more(detail: dict[str, Any], more: int) -> dict[str, Any]:
    return detail | {"more": more} if more > 0 else detail


_Reader = Callable[[Conn, AlertKind, Sequence[AlertRule], datetime], Awaitable[Readings]]
_READERS: Final[Mapping[AlertKind, _Reader]] = {
    AlertKind.COMPLAINT_RATE: _rates,
    AlertKind.BOUNCE_RATE: _rates,
    AlertKind.QUOTA_USAGE: _quota,
    AlertKind.DNS_DRIFT: _drift,
    AlertKind.BLOCKLIST: _blocklists,
    AlertKind.WEBHOOK_FAILING: _webhooks,
}
