"""`ops alerts`: alert rules and alerts of any account."""

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import click
from msgspec import Struct

from engine.accounts.alerts.types import MIN_SETTLED, UnknownReason
from engine.base import clock, ids
from engine.store.queries import Queries
from ops.commands.base import account_filter, as_json, in_database, limit_option, record, reported, show_rows
from ops.commands.find_account import find_account

OVERDUE: Final = timedelta(minutes=3)  # a rule unmeasured for longer waits for a worker
_UNKNOWN: Final = {
    UnknownReason.FEW_SETTLED: f"fewer than {MIN_SETTLED} recipients were settled in its window",
    UnknownReason.NO_ANSWER: "the last check of its domains had no answer from DNS for records that decide",
    UnknownReason.NOT_MEASURED: "no trusted blocklist answered a recent check; see `ops blocklists`",
    UnknownReason.NO_ALLOWANCE: "the account has no log head; it is being erased",
}
_SQL = Queries.beside(__file__, "alerts.sql")


class RuleShown(Struct, frozen=True):
    """A rule with the account that it belongs to."""

    id: UUID
    account_id: UUID
    account: str
    account_status: str
    kind: str
    threshold: float
    window_days: int
    enabled: bool
    state: str
    last_value: float | None
    unknown_because: str | None
    firing_since: datetime | None
    notified: bool
    noticed_at: datetime | None
    cooldown_minutes: int
    last_measured_at: datetime | None


class FiringShown(Struct, frozen=True):
    """An alert that fired, with its account."""

    id: UUID
    account_id: UUID
    account: str
    rule_id: UUID
    kind: str
    value: float
    threshold: float
    channels: list[str]
    fired_at: datetime
    ended_at: datetime | None


_RULES = _SQL.rows("alert_rules", RuleShown)
_FIRINGS = _SQL.rows("alert_firings", FiringShown)
_RULE_COLUMNS = ["account", "kind", "threshold", "value", "state", "why", "measuredAt", "id"]
_FIRING_COLUMNS = ["account", "kind", "value", "threshold", "channels", "firedAt", "endedAt", "id"]
_limit = limit_option(50, most=10_000)


@click.group()
def alerts() -> None:
    """Alert rules of the accounts, and what has fired."""


@alerts.command("rules")
@account_filter
@click.option("--state", type=click.Choice(["firing", "unknown", "ok"]), help="Only rules in this state.")
@_limit
@as_json
@reported
def alert_rules(*, account: str | None, state: str | None, limit: int, as_json: bool) -> None:
    """List alert rules with their last value, and why each is in its state."""
    show_rows(in_database(rules, account=account, state=state, limit=limit), _RULE_COLUMNS, as_json=as_json)


@alerts.command("firings")
@account_filter
@click.option("--open", "open_only", is_flag=True, help="Only alerts that have not ended.")
@_limit
@as_json
@reported
def alert_firings(*, account: str | None, open_only: bool, limit: int, as_json: bool) -> None:
    """List the alerts that have fired, newest first."""
    show_rows(in_database(firings, account=account, open_only=open_only, limit=limit), _FIRING_COLUMNS, as_json=as_json)


async def rules(pool: asyncpg.Pool, *, account: str | None, state: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the rules of one account, or of all (`account` None), with a reason for each state."""
    owner = None if account is None else await find_account(pool, account)
    now = clock.now()
    return [
        {
            "id": ids.format_id(ids.Kind.ALERT_RULE, row.id),
            "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
            "account": row.account,
            "kind": row.kind,
            "threshold": row.threshold,
            "value": _rounded(row.last_value),
            "state": row.state,
            "why": why(row, now),
            "firingSince": clock.iso_or_none(row.firing_since),
            "measuredAt": clock.iso_or_none(row.last_measured_at),
        }
        for row in await _RULES.fetch(pool, owner, state, limit)
    ]


async def firings(pool: asyncpg.Pool, *, account: str | None, open_only: bool, limit: int) -> list[dict[str, Any]]:
    """Return the alerts that fired, of one account or of all, newest first."""
    owner = None if account is None else await find_account(pool, account)
    return [
        record(row, id=ids.Kind.ALERT_EVENT, rule_id=ids.Kind.ALERT_RULE, account_id=ids.Kind.ACCOUNT)
        | {"value": _rounded(row.value)}
        for row in await _FIRINGS.fetch(pool, owner, open_only, limit)
    ]


def why(row: RuleShown, now: datetime) -> str:
    """Return in words why a rule is in its state."""
    if not row.enabled:
        return "disabled: not measured, the state is the last one"
    if row.account_status == "closing":
        return "the account is closing: not measured"
    if row.last_measured_at is None or now - row.last_measured_at > OVERDUE:
        return "no worker has measured it; is a worker running?"
    if row.unknown_because is not None:
        words = _UNKNOWN[UnknownReason(row.unknown_because)]
        return words if row.firing_since is None else f"fires until it can be measured again: {words}"
    if row.firing_since is None:
        return "below its threshold"
    return "its notice went out" if row.notified else f"its notice waits for the cooldown, until {_cooldown_end(row)}"


def _cooldown_end(row: RuleShown) -> str | None:
    return None if row.noticed_at is None else clock.iso(row.noticed_at + timedelta(minutes=row.cooldown_minutes))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
