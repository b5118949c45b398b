"""Create and change alert rules, each in one transaction with its event in the account log.

A change leaves the state of a rule: neither an edit nor switching it off and on re-arms an alert that is firing.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import structs

from engine.accounts.alerts import rules, store
from engine.accounts.alerts.rules import WHAT
from engine.accounts.alerts.types import DEFAULT_SET, AlertEvent, AlertKind, AlertRule, AlertRuleFields
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing
from engine.base.events import AccountEvent
from engine.ledger.events import record_event
from engine.ledger.plan_limits import locked_caps
from engine.store.database_clock import new_time
from engine.store.queries import Conn, Source

ALL_KINDS = len(AlertKind)
_PUBLIC = {
    "threshold": "threshold", "window_days": "windowDays", "cooldown_minutes": "cooldownMinutes",
    "notify_email": "notifyEmail", "notify_webhook": "notifyWebhook", "enabled": "enabled",
}  # fmt: skip


async def create(
    pool: asyncpg.Pool, account: UUID, kind: AlertKind, fields: AlertRuleFields, *, actor: str
) -> AlertRule:
    """Create the rule of a kind; raise the 409 with the id of the account's rule of that kind."""
    rules.check(kind, fields)
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        held = await _by_kind(connection, account)
        if kind in held:
            raise Refusal(
                ErrorType.CONFLICT,
                f"Your account already has a rule for {kind.value}: {held[kind].public_id}. Change that one with "
                "PATCH.",
                id=held[kind].public_id,
            )
        return await _insert(connection, account, kind, fields, actor)


async def create_missing(pool: asyncpg.Pool, account: UUID, *, actor: str) -> list[AlertRule]:
    """Create the default rules that are missing; raise the 409 if none is."""
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        held = await _by_kind(connection, account)
        missing = [kind for kind in DEFAULT_SET if kind not in held]
        if not missing:
            raise Refusal(
                ErrorType.CONFLICT,
                "Your account already has all default rules. Change them with PATCH.",
            )
        return [await _insert(connection, account, kind, rules.defaults(kind), actor) for kind in missing]


async def change(pool: asyncpg.Pool, account: UUID, rule: UUID, changed: dict[str, object], *, actor: str) -> AlertRule:
    """Change fields of a rule and return it; raise the 404 for an unknown one."""
    async with pool.acquire() as connection, connection.transaction():
        row = await locked(connection, account, rule)
        before = fields_of(row)
        after = structs.replace(before, **changed)
        if after == before:
            return row
        rules.check(AlertKind(row.kind), after)
        await store.change(connection, rule, after)
        names = [_PUBLIC[name] for name in changed if getattr(after, name) != getattr(before, name)]
        await record(connection, row, AccountEvent.ALERT_RULE_UPDATED, actor, changed=names)
        return await read(connection, account, rule)


async def read(source: Source, account: UUID, rule: UUID) -> AlertRule:
    """Return a rule; raise the 404 for an unknown one."""
    return existing(await store.READ.first(source, account, rule), WHAT)


async def locked(connection: Conn, account: UUID, rule: UUID) -> AlertRule:
    """Lock and return a rule; raise the 404 for an unknown one."""
    return existing(await store.LOCK.first(connection, account, rule), WHAT)


def fields_of(row: AlertRule) -> AlertRuleFields:
    """Return the fields of a rule that its owner writes."""
    return AlertRuleFields(**{name: getattr(row, name) for name in AlertRuleFields.__struct_fields__})


def ended_detail(event: AlertEvent, at: datetime, value: float | None) -> dict[str, object]:
    """Return the detail of `alert.ended`; `value` is the last measurement."""
    return {
        "id": event.public_id,
        "rule_id": ids.format_id(ids.Kind.ALERT_RULE, event.rule_id),
        "kind": event.kind,
        "value": value,
        "threshold": event.threshold,
        "fired_at": clock.iso(event.fired_at),
        "ended_at": clock.iso(at),
    }


async def record(connection: Conn, row: AlertRule, kind: AccountEvent, actor: str, **detail: object) -> None:
    """Append an event about a rule to the account log."""
    named = {"id": row.public_id, "kind": row.kind} | detail
    await record_event(connection, row.account_id, kind, named, actor=actor)


async def _by_kind(connection: Conn, account: UUID) -> dict[AlertKind, AlertRule]:
    rows: Sequence[AlertRule] = await store.LIST.fetch(connection, account, None, ALL_KINDS)
    return {AlertKind(row.kind): row for row in rows}


async def _insert(connection: Conn, account: UUID, kind: AlertKind, fields: AlertRuleFields, actor: str) -> AlertRule:
    at = await new_time(connection)
    rule = ids.uuid7_at(at)
    await store.insert(connection, account, rule, kind, fields, at)
    row = await read(connection, account, rule)
    await record(connection, row, AccountEvent.ALERT_RULE_CREATED, actor, threshold=fields.threshold)
    return row
