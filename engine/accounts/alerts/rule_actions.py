"""Test an alert rule, and delete one that may be firing: both tell people or webhooks."""

from datetime import datetime
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct

from engine.accounts import suspend
from engine.accounts.alerts import notices, readings, rules, service, store
from engine.accounts.alerts.notices import AlertNotice
from engine.accounts.alerts.types import AlertEvent, AlertKind, AlertReading, AlertRule
from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.base.events import AccountEvent
from engine.base.settings import Settings
from engine.ledger import heads, log
from engine.store.queries import Conn


class AlertTest(Struct, frozen=True):
    """The result of a test: the rule, its value now, and the channels of the notice."""

    rule: AlertRule
    reading: AlertReading
    channels: list[str]


async def send_test(
    pool: asyncpg.Pool, settings: Settings, account: UUID, rule: UUID, at: datetime, *, actor: str
) -> AlertTest:
    """Measure a rule and send a notice marked as a test on its channels; the rule's state stays.

    Raises the 404 for an unknown rule, the 429 if it was tested within the last minute.
    """
    await service.read(pool, account, rule)
    await suspend.count_outcomes(pool, at)
    async with pool.acquire() as connection, connection.transaction():
        row = await service.locked(connection, account, rule)
        if not await store.mark_tested(connection, rule, at, at - rules.TESTED_EVERY):
            raise _too_soon()
        reading = (await readings.read(connection, AlertKind(row.kind), [row], at))[account]
        event = await _example(connection, settings, row, reading, at)
        locked = await heads.lock(connection, [account])
        channels = await notices.tell(connection, locked, [AlertNotice(row, event, test=True)], at, actor=actor)
    return AlertTest(row, reading, channels[event.id])


async def delete_rule(pool: asyncpg.Pool, account: UUID, rule: UUID, at: datetime, *, actor: str) -> None:
    """Delete a rule; an alert that is firing ends, which is told if its notice went out. Raises the 404."""
    async with pool.acquire() as connection, connection.transaction():
        row = await service.locked(connection, account, rule)
        ended = await store.delete(connection, rule, at)
        await service.record(connection, row, AccountEvent.ALERT_RULE_DELETED, actor)
        if ended is not None and row.notified:
            detail = service.ended_detail(ended, at, row.last_value) | {"because": "rule_deleted", "actor": actor}
            entry = log.Entry(account, AccountEvent.ALERT_ENDED, log.detail_text(detail), at)
            locked = await heads.lock(connection, [account])
            await notices.append(connection, locked, [entry], silent=[] if row.notify_webhook else [account])


async def _example(
    connection: Conn, settings: Settings, row: AlertRule, reading: AlertReading, at: datetime
) -> AlertEvent:
    """Return an alert event as if the rule fired now; an unknown value shows as the threshold."""
    detail = reading.detail
    if row.kind == AlertKind.DNS_DRIFT:
        detail = (await readings.with_records(connection, settings, {row.account_id: reading}, [row.account_id]))[
            row.account_id
        ]
    value = row.threshold if reading.value is None else reading.value
    return AlertEvent(
        ids.uuid7_at(at), row.account_id, row.id, row.kind, value, row.threshold, row.window_days, [],
        orjson.dumps(detail).decode(), at, None,
    )  # fmt: skip


def _too_soon() -> Refusal:
    return Refusal(
        ErrorType.RATE_LIMITED,
        "This rule was tested within the last minute. Try again in a minute.",
        retry_after_s=int(rules.TESTED_EVERY.total_seconds()),
    )
